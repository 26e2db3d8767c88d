// The page of a run: how far it has come, as it comes.
const page = document.getElementById("run").dataset;

if (page.state === "done") await import("./curves.js");
