// While `opsmith serve` shows a run: asks for what changed, and puts it into the page as it stands.

const PAUSE = 1000;

function startLive(changed) {
  if (!LIVE) return;
  const status = document.querySelector(".live");
  status.hidden = false;
  let token = "";
  const ask = async () => {
    try {
      const answer = await fetch(`${LIVE}?after=${encodeURIComponent(token)}`, { cache: "no-store" });
      if (!answer.ok) throw new Error(`${answer.status}`);
      const found = await answer.json();
      if (found.token !== token) {
        token = found.token;
        Object.assign(report, found.changed);
        changed();
      }
      const run = report.conformance;
      status.dataset.state = run && !run.complete ? "running" : "idle";
      status.textContent = found.problem
        || (!run ? "waiting for results"
          : run.complete ? "run complete"
            : `running: ${plural(run.entries.length, "entry", "entries")} so far`);
    } catch {
      status.dataset.state = "lost";
      status.textContent = "opsmith serve has ended";
    }
    setTimeout(ask, PAUSE);
  };
  ask();
}
