import { describe, expect, it } from 'vitest'
import { FrameWatch } from '../../../../src/gateway/ingress/device/frame-watch.ts'
import {
  CONTINUATION,
  DATA,
  END_HEADERS,
  END_STREAM,
  frame,
  GOAWAY,
  HEADERS,
  PREFACE,
  SETTINGS,
  uint32,
} from '../../../helpers/http2-frames.ts'
import { seeded } from '../../../helpers/seeded.ts'

const CONVERSATION = Buffer.concat([
  frame(SETTINGS, 0, 0),
  frame(HEADERS, 0, 1, [1, 2, 3]),
  // What looks like the end of a stream stands in a body.
  frame(DATA, 0, 1, frame(DATA, END_STREAM, 9)),
  frame(DATA, END_STREAM, 1, []),
  frame(HEADERS, END_STREAM | END_HEADERS, 3, [1]),
  // END_STREAM is no flag of these.
  frame(SETTINGS, END_STREAM, 0),
  frame(GOAWAY, 0, 0, Buffer.concat([uint32(3), uint32(11), Buffer.from('calm')])),
  frame(DATA, 0, 5, [1]),
])

describe('FrameWatch', () => {
  it('knows which stream has ended, and the end of a connection, however the bytes are cut', () => {
    const random = seeded(7)
    for (let run = 0; run < 200; run += 1) {
      const watch = new FrameWatch('server')
      let at = 0
      while (at < CONVERSATION.length) {
        const next = at + 1 + Math.floor(random() * 12)
        watch.see(CONVERSATION.subarray(at, next))
        at = next
      }
      expect(watch).toMatchObject({ isHttp2: true, endedStream: 3, goawayCode: 11 })
    }
  })

  it.each([
    ['a body', [frame(DATA, END_STREAM, 1, [1, 2, 3, 4])]],
    ['a head', [frame(HEADERS, END_STREAM | END_HEADERS, 1, [1, 2, 3, 4])]],
    [
      'a head that goes on',
      [frame(HEADERS, END_STREAM, 1, [1]), frame(CONTINUATION, END_HEADERS, 1, [2, 3])],
    ],
  ])('takes no stream for ended whose last frame is not whole: %s', (_name, frames) => {
    const watch = new FrameWatch('server')
    watch.see(frame(SETTINGS, 0, 0))
    const bytes = Buffer.concat(frames)
    watch.see(bytes.subarray(0, -1))
    expect(watch.endedStream).toBe(0)
    watch.see(bytes.subarray(-1))
    expect(watch.endedStream).toBe(1)
  })

  it('passes over the preface of a client', () => {
    const watch = new FrameWatch('client')
    watch.see(PREFACE)
    expect(watch.isHttp2).toBeUndefined()
    watch.see(frame(SETTINGS, 0, 0))
    expect(watch.isHttp2).toBe(true)
  })

  it('knows what is no HTTP/2 by what comes first', () => {
    const watch = new FrameWatch('server')
    watch.see(Buffer.from('HTTP/1.1'))
    expect(watch.isHttp2).toBeUndefined()
    watch.see(Buffer.from(' 400'))
    expect(watch.isHttp2).toBe(false)
  })

  it('takes a GOAWAY that is too short for one without an error', () => {
    const watch = new FrameWatch('server')
    watch.see(Buffer.concat([frame(SETTINGS, 0, 0), frame(GOAWAY, 0, 0), frame(SETTINGS, 0, 0)]))
    expect(watch.goawayCode).toBe(0)
  })
})
