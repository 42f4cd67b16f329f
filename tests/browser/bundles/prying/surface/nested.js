// Runs, if it can, in a frame inside the surface, and tells what that realm offers.
parent.postMessage({ nested: [typeof RTCPeerConnection, typeof WebTransport] }, "*");
