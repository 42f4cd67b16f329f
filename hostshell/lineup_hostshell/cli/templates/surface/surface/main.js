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

  function on(id, act) {
    document.getElementById(id).addEventListener("click", act);
  }

  on("less", () => add(-1));
  on("more", () => add(1));
  on("done", () => lineup.submit({ count: lineup.state.count ?? 0 }));
  on("close", () => lineup.event("close", {}));

  lineup.onstate(show);
  lineup.onhost((host) => (document.documentElement.dataset.theme = host.theme)); // light or dark, as the workspace is
  lineup.ready();
})(window.lineup);
