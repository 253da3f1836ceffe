import { readdirSync, truncateSync, writeFileSync } from 'node:fs'
import { createServer, get, type IncomingMessage, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type EchoUpstream, startEchoUpstream } from '../helpers/echo-upstream.ts'
import { eventually } from '../helpers/eventually.ts'
import { findFaketime } from '../helpers/faketime.ts'
import { Site } from '../helpers/site.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const HOST = 'device123.site.localhost'
const faketime = findFaketime()

interface StatusBody {
  readonly verdict: string
  readonly ready: boolean
  readonly link: { readonly state: string; readonly reason: string | null }
  readonly storage: { readonly healed: unknown; readonly put_aside: string[] }
}

describe('a site in trouble', () => {
  let upstream: EchoUpstream
  let folder: string
  let site: Site

  beforeEach(async () => {
    upstream = await startEchoUpstream()
    folder = temporaryFolder()
    site = await Site.start(folder)
  })

  afterEach(async () => {
    await site.stop()
    await upstream.close()
  })

  const status = async () => (await site.call('GET', '/status')).json() as Promise<StatusBody>
  const isServed = () => eventually(async () => expect((await site.visit(HOST)).status).toBe(200))

  it('boots offline, takes a tunnel, and opens it when the service comes', async () => {
    await site.agent.end()
    await site.gateway.end()
    await site.startAgent()
    const answer = await site.create(HOST, upstream.port)
    expect(answer.status).toBe(202)
    expect((await site.call('GET', '/readyz')).status).toBe(503)
    await eventually(async () => expect((await status()).link.reason).toBe('network'))

    await site.startGateway()
    await isServed()
    expect((await site.call('GET', '/readyz')).status).toBe(200)
  })

  it('comes back after the gateway was killed and started again', async () => {
    await site.create(HOST, upstream.port)
    await site.gateway.end('SIGKILL')
    // In between it says that it connects.
    await eventually(async () => {
      expect((await status()).verdict).toMatch(
        /^The tunnel does not work\. 127\.0\.0\.1:\d+ refuses connections\.$/,
      )
    })
    await site.startGateway()
    await isServed()
  })

  it('ends on SIGTERM during a download, and the visitor notices', async () => {
    const endless: Server = createServer((_request, response) => {
      const timer = setInterval(() => response.write('x'.repeat(10_000)), 5)
      response.once('close', () => clearInterval(timer))
    }).listen(0, '127.0.0.1')
    await eventually(() => expect(endless.listening).toBe(true))
    await site.create(HOST, (endless.address() as AddressInfo).port)
    await site.online(1)
    const { port } = new URL(site.ready.ingress_http)
    const outcome = new Promise<string>((resolve) => {
      const onError = () => resolve('broken')
      const onResponse = (response: IncomingMessage) => {
        response.once('data', () => site.agent.child.kill('SIGTERM'))
        response.once('error', onError)
        response.once('end', () => resolve('complete'))
      }
      get({ host: '127.0.0.1', port, headers: { host: HOST } }, onResponse).on('error', onError)
    })
    const ended = await site.agent.ended
    expect([ended.code, await outcome]).toEqual([0, 'broken'])
    endless.closeAllConnections()
    endless.close()
    await site.startAgent()
    expect(await site.list()).toHaveLength(1)
  })

  it.each([
    ['emptied', (path: string) => truncateSync(path, 0)],
    ['overwritten', (path: string) => writeFileSync(path, Buffer.alloc(40_960, 0x5a))],
  ])('restores the tunnels when the database was %s, and says so', async (_how, damage) => {
    await site.create(HOST, upstream.port)
    await site.agent.end()
    damage(join(folder, 'agent', 'agent.db'))
    await site.startAgent()
    await isServed()
    const { storage } = await status()
    expect(storage.healed).not.toBeNull()
    const putAside = readdirSync(join(folder, 'agent')).filter((name) => name.includes('.corrupt-'))
    expect(putAside).not.toEqual([])
  })

  it('reads a token file only when it is whole', async () => {
    await site.create(HOST, upstream.port)
    await site.agent.end()
    const whole = `${site.authtoken}\n`
    writeFileSync(site.ready.authtoken_file, whole.slice(0, 20))
    await site.startAgent()
    await eventually(async () => expect((await status()).link.reason).toBe('auth'))
    writeFileSync(site.ready.authtoken_file, whole)
    await isServed()
  })

  describe.runIf(faketime)('with a clock that is wrong', () => {
    it('names the clock, not the certificate', async () => {
      await site.restartAgent('SIGTERM', { AGENT_DOMAIN: 'agent.site.localhost' })
      await eventually(async () => expect((await site.call('GET', '/readyz')).status).toBe(200))
      await site.restartAgent('SIGTERM', {
        AGENT_DOMAIN: 'agent.site.localhost',
        LD_PRELOAD: faketime ?? '',
        FAKETIME: '+400d',
      })
      await eventually(async () => expect((await status()).link.reason).toBe('clock'))
      expect((await status()).verdict).toContain('The clocks of this device and the gateway')
    })
  })
})
