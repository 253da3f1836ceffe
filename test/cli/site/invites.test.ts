import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import { CommanderError } from 'commander'
import { describe, expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import { Secret } from '../../../src/base/secret.ts'
import { createProgram } from '../../../src/cli/program.ts'
import { joinGateway } from '../../../src/join/join-client.ts'
import { parseJoinString } from '../../../src/join/join-string.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { type RunningOptions, startGateway } from '../../helpers/running-gateway.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

/** `device-agent gateway …` at the API of a gateway. */
async function startCommands(options: RunningOptions = {}) {
  const running = await startGateway({ reservedDomain: '*.site.test', ...options })
  const { call, apiKey } = await managed(running)
  const keyFile = join(temporaryFolder(), 'key')
  writeFileSync(keyFile, apiKey.reveal())
  const access = ['--api-url', `http://127.0.0.1:${running.addresses.api.port}`]
  let [out, err] = ['', '']
  const run = async (...words: string[]) => {
    ;[out, err] = ['', '']
    const into = (write: (text: string) => void) =>
      new Writable({
        write: (chunk, _encoding, done) => {
          write(String(chunk))
          done()
        },
      })
    const context = {
      environment: {},
      stdout: into((text) => {
        out += text
      }),
      stderr: into((text) => {
        err += text
      }),
      stop: new AbortController().signal,
    }
    const api = words.includes('--api-url') ? [] : access
    const given = ['gateway', ...words, ...api, '--key-file', keyFile]
    await createProgram(context).parseAsync(given, { from: 'user' })
    return { out, err }
  }
  /** The API behind a proxy that loses its way to it before a deletion. */
  const withoutDeletions = async () => {
    const proxy = createServer((asked, answer) => {
      if (asked.method === 'DELETE') answer.writeHead(502).end()
      else {
        const { url: path = '', method, headers } = asked
        const { port } = running.addresses.api
        const passed = request({ host: '127.0.0.1', port, path, method, headers }, (given) => {
          answer.writeHead(given.statusCode ?? 502, given.headers)
          given.pipe(answer)
        })
        asked.pipe(passed)
      }
    })
    proxy.listen(0, '127.0.0.1')
    await once(proxy, 'listening')
    onTestFinished(() => void proxy.close())
    return ['--api-url', `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`]
  }
  return { run, call, withoutDeletions, printed: () => out }
}

async function enrol(text: string, hostname: string) {
  const joinString = parseJoinString(text)
  if ('problem' in joinString) throw new Error(joinString.problem)
  const claim = new Secret('c'.repeat(22))
  return joinGateway({ joinString, claim, hostname, clock: systemClock })
}

describe('device-agent gateway invite', () => {
  it('refuses TCP addresses of a host that the gateway does not have', async () => {
    const { run } = await startCommands({
      tcpListen: { host: '127.0.0.1', first: 20_000, last: 20_009 },
    })
    const allow = (rule: string) => run('invite', '--name', 'cam01', '--allow', rule)
    await expect(allow('gateway.example.com:*')).rejects.toThrow(
      'The ACL rule bind:gateway.example.com:* gives no TCP address: those of this gateway are 127.0.0.1:20000 to 127.0.0.1:20009. Use bind:127.0.0.1:*.',
    )
    for (const rule of ['127.0.0.1:*', 'db.internal:*', 'cam.site.test']) await allow(rule)
  })

  it('prints the line to paste, what the device may open, and how to end it', async () => {
    const { run, call } = await startCommands()
    const { out, err } = await run('invite', '--name', 'cam01', '--tag', 'hall-b', 'camera')
    const [, text = ''] = /^ {2}echo '(dajoin1_\S+)' \| sudo device-agent join -$/m.exec(out) ?? []
    const [, id = ''] = /To end it earlier: device-agent gateway withdraw (inv_\w+)/.exec(out) ?? []
    expect(out).toContain('It works for one device.')
    expect(out).toMatch(/may open +cam01\.site\.test, \*\.cam01\.site\.test/)
    expect(out).toMatch(/tags +camera, hall-b/)
    expect(out).toMatch(/until .*\((60 min|1 h)\)/)
    // No terminal, no QR code.
    expect(out).not.toContain('▀')
    expect(err).toMatch(/^warning: devices on other machines cannot use the addresses/)
    expect(await enrol(text, 'any')).toMatchObject({ name: 'cam01' })
    const list = (await run('invites')).out
    expect(list).toMatch(new RegExp(`${id} +used +1 of 1`))
    expect(list).toMatch(/joined: cam01 .*from 127\.0\.0\.1/)
    expect((await call('GET', `/invites/${id}`)).body.state).toBe('used')
  })

  it('says that a domain is not reserved yet', async () => {
    const { run, call } = await startCommands()
    await call('POST', '/reserved_domains', { domain: '*.site.test' })
    const said = async (domain: string) => (await run('invite', '--domain', domain)).err
    expect(await said('*.exmaple.com')).toContain(
      'warning: *.exmaple.com is not reserved yet. It is reserved when the device joins, and needs DNS records',
    )
    expect(await said('*.{name}.site.test')).not.toContain('not reserved')
  })

  it('makes one for several devices, as JSON or as a QR code, until it is withdrawn', async () => {
    const { run } = await startCommands()
    const terms = ['--count', '3', '--end', '24h', '--domain', '*.{name}.site.test']
    const { out } = await run('invite', ...terms, '--allow', '{name}.more.test', '--json')
    const made = JSON.parse(out)
    expect(made).toMatchObject({ max_uses: 3, state: 'open', acl: ['bind:{name}.more.test'] })
    const leftMs = Date.parse(made.expires_at) - Date.now()
    expect(leftMs).toBeGreaterThan(23 * 3_600_000)
    expect(leftMs).toBeLessThanOrEqual(24 * 3_600_000)
    expect((await enrol(made.join_string, 'cam')).agentDomain).toBe('agent.cam.site.test')
    expect((await run('withdraw', made.id)).out).toContain('Withdrawn.')
    await expect(enrol(made.join_string, 'other')).rejects.toThrow('was withdrawn')
    const other = JSON.parse((await run('invite', '--json')).out)
    const withdrawn = await run('withdraw', other.id, '--json')
    expect(JSON.parse(withdrawn.out)).toEqual({ id: other.id, state: 'withdrawn' })
    expect((await run('invite', '--qr')).out).toContain('▀')
    await expect(run('withdraw', 'inv_nope')).rejects.toThrow('No invitation inv_nope. List them:')
    await expect(run('withdraw', 'cam')).rejects.toThrow('is not the id of an invitation')
  })

  it('gives the name of a device to another machine with --replace, and says who loses it', async () => {
    const { run, call } = await startCommands()
    const named = ['invite', '--name', 'cam01', '--json']
    const first = await run(...named, '--replace', '--allow', 'shop.site.test')
    expect(first.err).not.toContain('cam01')
    await enrol(JSON.parse(first.out).join_string, 'old')
    const plain = await run(...named)
    expect(plain.err).toContain('warning: a device named cam01 exists. Only that device can join')
    expect(plain.err).toContain('Not in this invitation: shop.site.test. To keep such a name')
    await expect(enrol(JSON.parse(plain.out).join_string, 'new')).rejects.toThrow('--replace')
    const second = await run(...named, '--replace')
    expect(second.err).toContain('warning: the old authtoken of cam01 was revoked.')
    expect(second.err).toContain('Not in this invitation: shop.site.test. To keep such a name')
    expect((await enrol(JSON.parse(second.out).join_string, 'new')).name).toBe('cam01')
    const { body } = await call('GET', '/credentials')
    const ofDevice = body.credentials.filter((it: { description: string }) =>
      it.description.endsWith('cam01'),
    )
    expect(ofDevice).toHaveLength(1)
    await expect(run('invite', '--replace')).rejects.toThrow('--replace requires --name')
  })

  it('has shown the line if the old authtoken then cannot be revoked', async () => {
    const { run, withoutDeletions, printed } = await startCommands()
    const named = ['invite', '--name', 'cam01', '--json']
    await enrol(JSON.parse((await run(...named)).out).join_string, 'old')
    const words = [...named, '--replace', ...(await withoutDeletions())]
    await expect(run(...words)).rejects.toThrow('502')
    expect(JSON.parse(printed()).join_string).toMatch(/^dajoin1_/)
  })

  it('revokes nothing of a bot user without a device', async () => {
    const { run, call } = await startCommands()
    const { body: account } = await call('POST', '/bot_users', { name: 'cam01' })
    const { body: made } = await call('POST', '/credentials', { owner_id: account.id })
    const { err } = await run('invite', '--name', 'cam01', '--replace')
    expect(err).toContain('warning: a bot user named cam01 exists. No device can join')
    expect((await call('GET', `/credentials/${made.id}`)).status).toBe(200)
  })

  it('refuses terms that would give several devices one name', async () => {
    const { run } = await startCommands()
    await expect(run('invite', '--count', '3')).rejects.toThrow(CommanderError)
    await expect(run('invite', '--end', 'soon')).rejects.toThrow(CommanderError)
    const several = ['--count', '3', '--end', '7d']
    await expect(run('invite', ...several, '--name', 'cam')).rejects.toThrow(
      /The field name .*\{name\}/,
    )
    await expect(run('invite', ...several, '--allow', 'x.site.test')).rejects.toThrow(
      /The field acl .*\{name\}/,
    )
    expect((await run('invites')).out).toMatch(/^No invitations\./)
  })
})

describe('device-agent gateway revoke', () => {
  it('ends the authtoken of a device, and says how to let it back in', async () => {
    const { run, call } = await startCommands()
    const made = JSON.parse((await run('invite', '--name', 'cam01', '--json')).out)
    await enrol(made.join_string, 'any')
    const { body } = await call('GET', '/devices')
    const [{ id, credential }] = body.devices
    const { out } = await run('revoke', 'cam01')
    expect(out).toMatch(/^Revoked\. cam01 is offline.* device-agent gateway invite --name cam01$/m)
    expect((await call('GET', `/credentials/${credential.id}`)).status).toBe(404)
    await expect(run('revoke', id)).rejects.toThrow('has no authtoken. Nothing was changed.')
    await expect(run('revoke', 'cam02')).rejects.toThrow('This gateway has no device cam02.')
    const again = JSON.parse((await run('invite', '--name', 'cam01', '--json')).out)
    expect((await enrol(again.join_string, 'any')).name).toBe('cam01')
  })

  it('asks for the id if two accounts have a device with this name', async () => {
    const { run, call } = await startCommands()
    for (const name of ['a', 'b']) {
      const { body: account } = await call('POST', '/bot_users', { name })
      const { body: token } = await call('POST', '/credentials', { owner_id: account.id })
      await call('POST', '/devices', { name: 'cam01', credential_id: token.id })
    }
    const { devices } = (await call('GET', '/devices')).body
    const refusal = await run('revoke', 'cam01').catch(String)
    for (const { id } of devices) expect(refusal).toContain(id)
    expect(JSON.parse((await run('revoke', devices[0].id, '--json')).out)).toEqual({
      device_id: devices[0].id,
      name: 'cam01',
      credential_id: devices[0].credential.id,
    })
    expect((await call('GET', `/credentials/${devices[1].credential.id}`)).status).toBe(200)
  })
})
