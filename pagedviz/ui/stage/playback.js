// Playback: the steps come one after the other, to the end of the run or up to a step.

const STEP_MS = 1000;
const FASTEST_MS = 40;
const ON_THE_WAY_MS = 6000;

export class Playback {
  constructor(stage) {
    this.stage = stage;
    this.speed = 1;
    this.until = 0; // the step that it plays up to; it may be one that is not known yet
    this.timer = null;
  }

  get isPlaying() {
    return this.timer !== null;
  }

  // While it plays, a new target only changes where it stops. A target that is not known yet is played to once it is. A
  // long way to a target is played faster, a step every 0.04 s at the least.
  play(until = Infinity) {
    const { stage } = this;
    if (until === Infinity && stage.step >= stage.data.steps.length) stage.goTo(0);
    this.until = until;
    if (this.isPlaying) return;
    const pace = until === Infinity ? STEP_MS : Math.max(FASTEST_MS, Math.min(STEP_MS, ON_THE_WAY_MS / (until - stage.step)));
    const tick = () => {
      stage.goTo(stage.step + 1, { animate: true, playing: true });
      const pause = stage.data.pauses?.find(({ step }) => step === stage.step);
      if (pause) {
        stage.pauseText = pause.text;
        this.until = 0;
      }
      if (pause || stage.step >= Math.min(this.until, stage.data.steps.length)) this.stop();
      else this.timer = setTimeout(tick, pace / this.speed);
      stage.drawBar();
    };
    this.timer = setTimeout(tick, 60);
    stage.drawBar();
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = null;
  }

  // The learner stops it, or goes to a step: the target is given up.
  giveUp() {
    this.stop();
    this.until = 0;
  }

  toggle() {
    if (this.isPlaying) this.giveUp();
    else this.play();
    this.stage.drawBar();
  }
}
