import { type Clock, systemClock } from '../../src/base/clock.ts'

/** The machine's clock, whose wall can be set ahead: sessions get old, and connections do not. */
export class WallClock implements Clock {
  readonly monotonic = systemClock.monotonic
  readonly sleep = systemClock.sleep
  aheadMs = 0
  readonly now = () => systemClock.now() + this.aheadMs
}
