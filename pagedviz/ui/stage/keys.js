// Left, Right, Space, Home and End, and the lens's letters, while the focus is in the stage or on the bare page.

const live = [];

const ACTIONS = {
  ArrowLeft: (stage) => stage.back(),
  ArrowRight: (stage) => stage.forward(),
  " ": (stage) => stage.playback.toggle(),
  Home: (stage) => stage.goTo(0),
  End: (stage) => stage.goTo(stage.data.steps.length),
};

// A focused control keeps the keys that it uses itself.
function keptByControl(target, key) {
  if (target.isContentEditable || target.localName === "textarea" || target.localName === "select") return true;
  if (target.localName === "input") return target.type !== "range" || key !== " ";
  if (target.matches("button, a[href], summary, [role=button]")) return key === " ";
  return target.matches("pre, .beam-scroll") && target.scrollWidth > target.clientWidth && key.startsWith("Arrow");
}

export function listenToKeys(stage) {
  live.unshift(stage);
  const used = () => {
    live.splice(live.indexOf(stage), 1);
    live.unshift(stage);
  };
  const onKey = (event) => {
    const action = ACTIONS[event.key] ?? stage.lens.actionOf(event.key);
    if (!action || event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey || !stage.data) return;
    const path = event.composedPath();
    const target = path[0];
    const inside = path.includes(stage.root);
    // the bare page: the body or a box around the stage has the focus; of several stages the one used last answers
    const bare = !inside && target.contains?.(stage.parent.host ?? stage.parent) && live.find((other) => other.root.isConnected) === stage;
    if (!inside && !bare) return;
    if (inside && keptByControl(target, event.key)) return;
    event.preventDefault();
    action(stage);
  };
  // Streamlit drops a button press when a state that another widget sends overtakes it. So the report goes out before the
  // press, not after it.
  const outside = (event) => event.composedPath().includes(stage.root) || stage.reportNow();
  document.addEventListener("keydown", onKey);
  document.addEventListener("keydown", outside, true);
  document.addEventListener("pointerdown", outside, true);
  stage.root.addEventListener("pointerdown", used);
  stage.root.addEventListener("focusin", used);
  return () => {
    document.removeEventListener("keydown", onKey);
    document.removeEventListener("keydown", outside, true);
    document.removeEventListener("pointerdown", outside, true);
    live.splice(live.indexOf(stage), 1);
  };
}
