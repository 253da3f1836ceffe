import { describe, expect, it } from 'vitest'
import { type Admission, Circuit, type CircuitOptions } from '../../../src/policy/limit/circuit.ts'
import { seeded } from '../../helpers/seeded.ts'

const OPTIONS = { errorThreshold: 0.5, volumeThreshold: 4, windowMs: 10_000, trippedMs: 20_000 }
const SLICE_MS = OPTIONS.windowMs / 10

function circuitOf(changes: Partial<CircuitOptions> = {}) {
  const circuit = new Circuit({ ...OPTIONS, ...changes })
  return {
    circuit,
    /** One request from admission to end; what it was admitted as. */
    ask(now: number, failed: boolean): Admission {
      const admission = circuit.admit(now)
      if (admission !== 'refuse') circuit.record(now, admission, failed)
      return admission
    },
  }
}

describe('Circuit', () => {
  it('decides as a list of all requests would, slice by slice', () => {
    for (let seed = 0; seed < 40; seed += 1) {
      const random = seeded(seed)
      const errorThreshold = 0.3 + random() * 0.7
      const volumeThreshold = 1 + Math.floor(random() * 6)
      const { circuit, ask } = circuitOf({ errorThreshold, volumeThreshold })
      const log: { slice: number; failed: boolean }[] = []
      let now = random() * 50_000
      let isOpen = false
      for (let step = 0; step < 300 && !isOpen; step += 1) {
        now += random() < 0.05 ? random() * 30_000 : random() * 900
        const failed = random() < 0.4
        expect(ask(now, failed)).toBe('pass')
        const slice = Math.floor(now / SLICE_MS)
        log.push({ slice, failed })
        const recent = log.filter((one) => one.slice > slice - 10)
        const failures = recent.filter((one) => one.failed).length
        isOpen =
          failed && recent.length >= volumeThreshold && failures / recent.length >= errorThreshold
        expect(circuit.waitMs(now)).toBe(isOpen ? OPTIONS.trippedMs : 0)
      }
    }
  })

  it('opens for so long, and tells how long that still is', () => {
    const { circuit, ask } = circuitOf()
    for (const failed of [false, false, true, true]) {
      expect(circuit.waitMs(1_000)).toBe(0)
      expect(ask(1_000, failed)).toBe('pass')
    }
    expect(circuit.waitMs(1_000)).toBe(20_000)
    expect(circuit.waitMs(6_000)).toBe(15_000)
    expect(circuit.waitMs(30_000)).toBe(0)
    expect(ask(20_999, false)).toBe('refuse')
    expect(ask(21_000, false)).toBe('probe')
    expect(circuit.waitMs(21_000)).toBe(0)
    expect(ask(21_000, false)).toBe('pass')
  })

  it('sends one probe at a time, and another when the first never ends', () => {
    const { circuit, ask } = circuitOf({ volumeThreshold: 1 })
    ask(0, true)
    expect(circuit.admit(20_000)).toBe('probe')
    expect(circuit.admit(20_000)).toBe('refuse')
    expect(circuit.waitMs(20_000)).toBe(20_000)
    expect(circuit.admit(39_999)).toBe('refuse')
    expect(circuit.admit(40_000)).toBe('probe')
  })

  it('stays open for as long again after a probe that failed', () => {
    const { circuit, ask } = circuitOf({ volumeThreshold: 1 })
    ask(0, true)
    expect(circuit.admit(25_000)).toBe('probe')
    circuit.record(27_000, 'probe', true)
    expect(circuit.waitMs(27_000)).toBe(20_000)
    expect(circuit.admit(46_999)).toBe('refuse')
  })

  it('begins anew after a probe that went well', () => {
    const { circuit, ask } = circuitOf()
    for (let call = 0; call < 4; call += 1) ask(0, true)
    expect(circuit.admit(20_000)).toBe('probe')
    circuit.record(20_000, 'probe', false)
    for (let call = 0; call < 3; call += 1) expect(ask(20_000, true)).toBe('pass')
    expect(circuit.waitMs(20_000)).toBe(0)
    ask(20_000, true)
    expect(circuit.waitMs(20_000)).toBe(20_000)
  })

  it('counts nothing of requests that ended while it was open', () => {
    const { circuit, ask } = circuitOf({ volumeThreshold: 2 })
    ask(0, true)
    ask(0, true)
    circuit.record(10_000, 'pass', true)
    circuit.record(10_000, 'pass', true)
    expect(circuit.waitMs(10_000)).toBe(10_000)
    expect(circuit.admit(20_000)).toBe('probe')
    circuit.record(20_000, 'probe', false)
    ask(20_000, true)
    expect(circuit.waitMs(20_000)).toBe(0)
  })

  it('forgets all after a long silence, however many slices that were', () => {
    for (const silence of [10_000, 11_000, 19_000, 1_000_000]) {
      const { circuit, ask } = circuitOf()
      for (let call = 0; call < 3; call += 1) ask(500, true)
      ask(500 + silence, true)
      expect(circuit.waitMs(500 + silence)).toBe(0)
    }
    const { circuit, ask } = circuitOf()
    for (let call = 0; call < 3; call += 1) ask(500, true)
    ask(9_999, true)
    expect(circuit.waitMs(9_999)).toBe(20_000)
  })

  it('takes a request that ends in an earlier slice than the last for one of now', () => {
    const { circuit } = circuitOf()
    circuit.record(9_500, 'pass', true)
    for (let call = 0; call < 3; call += 1) circuit.record(1_500, 'pass', true)
    expect(circuit.waitMs(1_500)).toBe(20_000)
  })
})
