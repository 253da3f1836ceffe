import { expect, it } from 'vitest'
import { ErrorCode } from '../../src/muxado/error-code.ts'
import { FIN, SYN } from '../../src/muxado/frame.ts'
import { turns } from '../helpers/frame-peer.ts'
import { framedSession } from '../helpers/framed-session.ts'

it('a trace says each frame in one line', async () => {
  const lines: string[] = []
  const { session, peer, accepted } = await framedSession({
    acknowledges: true,
    trace: (line) => lines.push(line),
  })
  peer.data(1, 'ask', SYN)
  peer.data(3, '', SYN | FIN)
  peer.windowIncrement(1, 7)
  peer.reset(3, 6)
  await turns()
  accepted[0]?.stream.write(Buffer.from('answer'))
  accepted[0]?.stream.end()
  await session.goAway(ErrorCode.enhanceYourCalm, 'too\nfast')
  expect(lines).toEqual([
    'received DATA 1 SYN 3 bytes',
    'received DATA 3 SYN FIN 0 bytes',
    'received WNDINC 1 7 bytes',
    'received RST 3 code 6',
    'sent WNDINC 2147483647 1 bytes',
    'sent DATA 1 6 bytes',
    'sent DATA 1 FIN 0 bytes',
    'sent GOAWAY last stream 3 code 10 "too\\nfast"',
  ])
})
