// The page's whole world is `window.lineup`: a state that the Runtime keeps, and messages to the MiniApp.
// The function around it all keeps this page's names apart from the bridge's own.
(function (lineup) {
  const count = document.getElementById("count");

  function show(state) {
    count.textContent = String(state.count ?? 0);
  }

  function add(step) {
    lineup.update({ count: (lineup.state.count ?? 0) + step });
  }

  document.getElementById("less").addEventListener("click", () => add(-1));
  document.getElementById("more").addEventListener("click", () => add(1));
  document.getElementById("done").addEventListener("click", () => lineup.submit({ count: lineup.state.count ?? 0 }));

  lineup.onstate(show);
  lineup.ready();
})(window.lineup);
