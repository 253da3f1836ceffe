import { once } from 'node:events'
import { createServer, request } from 'node:https'
import type { AddressInfo } from 'node:net'
import express from 'express'
import { describe, expect, it, onTestFinished } from 'vitest'
import { Secret } from '../../../src/base/secret.ts'
import { SessionCookie } from '../../../src/http/pages/session-cookie.ts'
import { createTlsFixture } from '../../helpers/tls-fixture.ts'

const cookie = new SessionCookie({ name: 'console_session', path: '/console' })

describe('the session cookie over TLS', () => {
  it('is never sent without TLS again, and goes as it came', async () => {
    const { caPem, certPem, keyPem } = await createTlsFixture()
    const app = express()
    app.get('/set', (incoming, response) => {
      cookie.set(incoming, response, new Secret('id'))
      response.end()
    })
    app.get('/clear', (incoming, response) => {
      cookie.clear(incoming, response)
      response.end()
    })
    const server = createServer({ cert: certPem, key: keyPem }, app).listen(0, '127.0.0.1')
    onTestFinished(() => void server.close().closeAllConnections())
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    const cookieOf = async (path: string) => {
      const outgoing = request({ host: 'localhost', port, path, ca: caPem, agent: false }).end()
      const [response] = await once(outgoing, 'response')
      response.resume()
      return response.headers['set-cookie']
    }
    const attributes = 'Path=/console; HttpOnly; Secure; SameSite=Strict'
    expect(await cookieOf('/set')).toEqual([`console_session=id; ${attributes}`])
    expect(await cookieOf('/clear')).toEqual([
      expect.stringMatching(
        /^console_session=; Path=\/console; Expires=Thu, 01 Jan 1970 [^;]*; HttpOnly; Secure; SameSite=Strict$/,
      ),
    ])
  })
})
