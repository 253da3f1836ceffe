import type { Duplex } from 'node:stream'
import type { MuxadoError } from '../../src/muxado/error-code.ts'
import { Session, type SessionOptions } from '../../src/muxado/session.ts'
import type { Stream } from '../../src/muxado/stream.ts'
import { pipePair } from './connected-pair.ts'
import { FramePeer } from './frame-peer.ts'
import { RecordingHandler } from './recording-handler.ts'

/** A session whose peer is a test that writes frames by hand. */
export interface FramedSession {
  readonly session: Session
  readonly peer: FramePeer
  /** The peer's end of the pipe. */
  readonly transport: Duplex
  /** Streams of the peer, oldest first, each with what its handler heard. */
  readonly accepted: { stream: Stream; handler: RecordingHandler }[]
  /** Why the session ended; undefined while it lives. */
  reason(): MuxadoError | undefined
}

export async function framedSession(options: Partial<SessionOptions> = {}): Promise<FramedSession> {
  const { client, server } = await pipePair()
  const accepted: FramedSession['accepted'] = []
  let reason: MuxadoError | undefined
  const session = new Session(server, {
    role: 'server',
    accept: (stream) => {
      const handler = new RecordingHandler()
      stream.handler = handler
      accepted.push({ stream, handler })
    },
    ...options,
  })
  void session.closed.then((error) => {
    reason = error
  })
  const peer = new FramePeer(client)
  return { session, peer, transport: client, accepted, reason: () => reason }
}
