import { describe, expect, it } from 'vitest'
import { FloodGuard } from '../../../../src/gateway/ingress/syntax/flood-guard.ts'

/** Written out: SECURITY.md names these numbers, and a change of one has to show here. */
const [brokenStreams, forgivenStreams] = [100, 5]
const [idleBytes, idleBytesPerSecond, bytesPerStream] = [1_048_576, 1_024, 16_384]
const [bytesPerContentByte, bytesPerPiece, pingBytes, settingsBytes] = [2, 128, 1_024, 4_096]
const [pieces, piecesPerSecond, tinyBytes] = [500, 500, 512]

describe('a guard against floods', () => {
  const times = (count: number, step: () => void) => {
    for (let n = 0; n < count; n += 1) step()
  }

  it('ends a connection with too many broken streams', () => {
    const guard = new FloodGuard(0)
    times(brokenStreams, () => guard.onStreamEnd(true, 0))
    expect(guard.check(0, 0)).toBeUndefined()
    guard.onStreamEnd(true, 0)
    expect(guard.check(0, 0)).toBe('broken-streams')
  })

  it('sets whole streams against broken ones, but saves none for later', () => {
    const guard = new FloodGuard(0)
    times(1_000, () => guard.onStreamEnd(false, 0))
    times(1_000, () => {
      guard.onStreamEnd(true, 0)
      guard.onStreamEnd(false, 0)
    })
    expect(guard.check(0, 0)).toBeUndefined()
    times(brokenStreams + 1, () => guard.onStreamEnd(true, 0))
    expect(guard.check(0, 0)).toBe('broken-streams')
  })

  it('forgives some with time', () => {
    const guard = new FloodGuard(0)
    times(brokenStreams, () => guard.onStreamEnd(true, 0))
    times(2 * forgivenStreams, () => guard.onStreamEnd(true, 2_000))
    expect(guard.check(0, 2_000)).toBeUndefined()
    guard.onStreamEnd(true, 2_000)
    expect(guard.check(0, 2_000)).toBe('broken-streams')
  })

  it.each<[string, (guard: FloodGuard) => void, number, number]>([
    ['at first', () => {}, 0, 0],
    ['with the time', () => {}, 5_000, 5 * idleBytesPerSecond],
    ['with a stream', (guard) => guard.onStream(), 0, bytesPerStream],
    ['with content', (guard) => guard.onContent(100), 0, 100 * bytesPerContentByte + bytesPerPiece],
    ['no more with empty content', (guard) => guard.onContent(0), 0, 0],
    ['no more with an empty piece', (guard) => guard.onPiece(0, 0), 0, 0],
    ['less for a PING', (guard) => guard.onPing(), 0, -pingBytes],
    [
      'as much for a PING with each piece of content',
      (guard) => {
        for (let n = 0; n < 10; n += 1) guard.onContent(10)
        for (let n = 0; n < 10; n += 1) guard.onPing()
      },
      0,
      100 * bytesPerContentByte + 10 * bytesPerPiece,
    ],
    ['less for a SETTINGS', (guard) => guard.onSettings(), 0, -settingsBytes],
  ])('allows so many bytes %s', (_when, act, now, more) => {
    const guard = new FloodGuard(0)
    act(guard)
    expect(guard.check(idleBytes + more, now)).toBeUndefined()
    expect(guard.check(idleBytes + more + 1, now)).toBe('idle-bytes')
  })

  it('charges for tiny pieces beyond those of every connection, and less the larger they are', () => {
    const guard = new FloodGuard(0)
    times(pieces - 1, () => expect(guard.onPiece(0, 0)).toBe(0))
    expect(guard.onPiece(0, 0)).toBe(1)
    expect(guard.onPiece(tinyBytes / 2, 0)).toBe(0.5)
    expect(guard.onPiece(tinyBytes, 0)).toBe(0)
    times(piecesPerSecond / 2 - 1, () => expect(guard.onPiece(0, 500)).toBe(0))
    expect(guard.onPiece(0, 500)).toBe(1)
  })
})
