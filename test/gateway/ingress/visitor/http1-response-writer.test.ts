import { describe, expect, it } from 'vitest'
import { startIngressSite } from '../../../helpers/ingress-site.ts'
import { fieldsOf, RawClient, startRawService } from '../../../helpers/raw-http.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const CONTINUE = 'HTTP/1.1 100 Continue\r\n\r\n'
const ASKING =
  'PUT / HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: 40\r\n\r\n'
const NEXT = 'GET /next HTTP/1.1\r\nHost: a.test\r\n\r\n'

async function clientOf(...answers: string[]): Promise<RawClient> {
  const port = await startRawService((socket) => {
    socket.once('data', () => {
      for (const answer of answers) socket.write(answer)
    })
    socket.on('end', () => socket.end())
  })
  const site = await startIngressSite({ service: port })
  return RawClient.connect(site.addresses.http.port)
}

describe('a final response to a client that waits for a 100', () => {
  it('closes the connection: nobody can tell whether the body still comes', async () => {
    const client = await clientOf(OK)
    client.send(ASKING)
    expect(fieldsOf(await client.receive('ok')).connection).toBe('close')
    // Were it kept, this would be swallowed as the body that was announced.
    client.send(NEXT)
    expect(await client.end()).toBe('end')
    expect(client.text.match(/^HTTP/gm)).toHaveLength(1)
  })

  it.each([
    ['was told to go on', [CONTINUE, OK], ''],
    ['did not wait', [OK], 'x'],
  ])('keeps it for one that %s', async (_what, answers, early) => {
    const client = await clientOf(...answers)
    client.send(`${ASKING}${early}`)
    expect(await client.receive('ok')).not.toContain('connection: close')
    client.send(`${'x'.repeat(40 - early.length)}GET / HTTP/1.1\r\nHost: no.test\r\n\r\n`)
    await client.receive('ERR_NGROK_3200')
  })
})
