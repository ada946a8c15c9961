// The connection to the crawl, and which of five states it is in:
//
//   live          samples arrive
//   late          the server lives, but a process has not answered for LATE seconds
//   reconnecting  the stream broke less than GRACE seconds ago
//   lost          it broke longer ago, and the crawl did not say that it ends: it died, or cannot be reached
//   stopped, failed   the crawl said so before it ended
//
// After each of the last three, the page tries again until a crawl answers.

const RETRY = 1000, GRACE = 6000; // ms
const LATE = 5; // s
const SILENCE = 10000; // ms without any event after which a stream counts as broken

export function connect(onSample, onState) {
  let source = null, state = "connecting", brokenAt = 0, timer = 0, end = null;

  function become(next) {
    if (next !== state) {
      state = next;
      onState(state, end);
    }
  }

  function heard() {
    brokenAt = 0;
    clearTimeout(timer);
    timer = setTimeout(broken, SILENCE);
  }

  function broken() {
    source.close();
    clearTimeout(timer);
    timer = setTimeout(open, RETRY);
    if (end) return;
    brokenAt = brokenAt || Date.now();
    become(Date.now() - brokenAt < GRACE && state !== "lost" ? "reconnecting" : "lost");
  }

  function open() {
    source = new EventSource("/events");
    source.onmessage = (message) => {
      const sample = JSON.parse(message.data);
      heard();
      if (!sample.at) return; // the server has no sample yet
      end = null;
      onSample(sample);
      become("live");
    };
    source.addEventListener("beat", (message) => {
      const beat = JSON.parse(message.data);
      heard();
      if (!end && beat.now - beat.at > LATE) become("late");
    });
    source.addEventListener("end", (message) => {
      end = JSON.parse(message.data);
      become(end.state);
    });
    source.onerror = broken;
  }

  open();
}
