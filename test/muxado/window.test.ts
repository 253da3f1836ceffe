import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { INITIAL_WINDOW_BYTES, MAX_UINT31 } from '../../src/muxado/frame.ts'
import { ReceiveWindow, SendWindow } from '../../src/muxado/window.ts'

describe('SendWindow', () => {
  it('counts what may still be sent', () => {
    const window = new SendWindow()
    window.take(INITIAL_WINDOW_BYTES)
    expect(window.available).toBe(0)
    expect(window.grow(10)).toBe(true)
    expect(window.available).toBe(10)
  })

  it('grows up to 2^31 - 1 and no further', () => {
    expect(new SendWindow().grow(MAX_UINT31 - INITIAL_WINDOW_BYTES)).toBe(true)
    expect(new SendWindow().grow(MAX_UINT31 - INITIAL_WINDOW_BYTES + 1)).toBe(false)
  })
})

describe('ReceiveWindow', () => {
  it('takes one window of bytes and not one more', () => {
    const window = new ReceiveWindow()
    expect(window.receive(INITIAL_WINDOW_BYTES)).toBe(true)
    expect(window.unreleased).toBe(INITIAL_WINDOW_BYTES)
    expect(window.receive(1)).toBe(false)
  })

  it('asks for a grant once 32 KiB are owed', () => {
    const window = new ReceiveWindow()
    window.receive(40_000)
    expect(window.release(32_767)).toBe(false)
    expect(window.release(1)).toBe(true)
    expect(window.grant()).toBe(32_768)
    expect(window.grant()).toBe(0)
  })

  it('does not grant more than was received, whatever its owner releases', () => {
    const window = new ReceiveWindow()
    window.receive(100)
    window.release(1_000_000)
    expect(window.grant()).toBe(100)
  })

  it('never lets the owner hold more than the window', () => {
    const step = fc.record({
      receive: fc.integer({ min: 0, max: 100_000 }),
      release: fc.integer({ min: 0, max: 100_000 }),
      grants: fc.boolean(),
    })
    fc.assert(
      fc.property(fc.array(step, { maxLength: 50 }), (steps) => {
        const window = new ReceiveWindow()
        let granted = INITIAL_WINDOW_BYTES
        for (const { receive, release, grants } of steps) {
          const bytes = Math.min(receive, granted)
          expect(window.receive(bytes)).toBe(true)
          granted -= bytes
          window.release(release)
          if (grants) granted += window.grant()
          expect(window.unreleased).toBeGreaterThanOrEqual(0)
          expect(window.unreleased + granted).toBeLessThanOrEqual(INITIAL_WINDOW_BYTES)
        }
      }),
    )
  })
})
