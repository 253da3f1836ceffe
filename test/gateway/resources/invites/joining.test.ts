import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { connect, type TLSSocket } from 'node:tls'
import { describe, expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../../../src/base/clock.ts'
import { hashToken, Secret } from '../../../../src/base/secret.ts'
import { CertificateAuthority } from '../../../../src/gateway/certificates/certificate-authority.ts'
import { CERTIFICATE_CHECK_MS } from '../../../../src/gateway/certificates/domain-certificates.ts'
import {
  JoinError,
  type Joined,
  type JoinRequest,
  joinGateway,
} from '../../../../src/join/join-client.ts'
import { JOIN_PROTOCOL } from '../../../../src/join/join-messages.ts'
import { parseJoinString, pinOf } from '../../../../src/join/join-string.ts'
import { captureLog } from '../../../helpers/captured-log.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { managed } from '../../../helpers/managed-gateway.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'
import {
  bind,
  connectSdk,
  type RunningGateway,
  type RunningOptions,
  sdkCode,
  startGateway,
} from '../../../helpers/running-gateway.ts'
import { somePorts } from '../../../helpers/some-ports.ts'
import { bindTcp } from '../../../helpers/tcp-site.ts'
import { temporaryFolder } from '../../../helpers/temporary-folder.ts'

const HOUR_MS = 3_600_000
const inAnHour = () => new Date(Date.now() + HOUR_MS).toISOString()
let claims = 0
const newClaim = () => new Secret(`claim-${++claims}`.padEnd(22, 'x'))

async function startSite(options: RunningOptions = {}) {
  const running = await startGateway(options)
  const { call } = await managed(running)
  const invite = async (body: object = {}, key?: string) => {
    const answer = await call('POST', '/invites', body, key)
    if (answer.status !== 201) throw new Error(JSON.stringify(answer.body))
    return answer.body
  }
  return { running, call, invite }
}

function requestFor(joinString: string, change: Partial<JoinRequest> = {}): JoinRequest {
  const parsed = parseJoinString(joinString)
  if ('problem' in parsed) throw new Error(parsed.problem)
  return {
    joinString: parsed,
    claim: newClaim(),
    hostname: 'Device-7.lan',
    clock: systemClock,
    ...change,
  }
}

const enrol = (joinString: string, change: Partial<JoinRequest> = {}): Promise<Joined> =>
  joinGateway(requestFor(joinString, change))

async function failureOf(joinString: string, change: Partial<JoinRequest> = {}) {
  const outcome = await enrol(joinString, change).catch((error: unknown) => error)
  if (outcome instanceof JoinError) return outcome
  throw new Error(`no JoinError: ${JSON.stringify(outcome)}`)
}

const codeOfDevice = async (running: RunningGateway, authtoken: Secret, domain: string) => {
  const session = await connectSdk(running, { authtoken })
  return sdkCode(bind(session, domain))
}

describe('a device that joins', () => {
  it('gets its names, and an authtoken that binds these and no others', async () => {
    const { running, call, invite } = await startSite()
    const made = await invite({
      name: 'cam01',
      domain: '*.{name}.site.test',
      tags: ['hall-b', 'camera'],
      acl: ['bind:{name}.extra.test'],
    })
    expect(made).toMatchObject({ state: 'open', uses: 0, max_uses: 1, claims: [] })
    expect(made.join_command).toBe(`echo '${made.join_string}' | sudo device-agent join -`)
    const joined = await enrol(made.join_string)
    const port = running.addresses.https.port
    expect(joined).toMatchObject({
      name: 'cam01',
      domain: '*.cam01.site.test',
      agentDomain: 'agent.cam01.site.test',
      agentUrl: `https://agent.cam01.site.test:${port}`,
      tags: ['camera', 'hall-b'],
      serverAddrs: [`127.0.0.1:${running.addresses.agent.port}`],
    })
    const { authtoken } = joined
    expect(await codeOfDevice(running, authtoken, 'agent.cam01.site.test')).toBeUndefined()
    expect(await codeOfDevice(running, authtoken, 'agent.cam02.site.test')).toMatch(/ERR_NGROK/)
    const { body: used } = await call('GET', `/invites/${made.id}`)
    expect(used).toMatchObject({ state: 'used', uses: 1, join_string: null, join_command: null })
    expect(used.claims).toMatchObject([
      { name: 'cam01', hostname: 'Device-7.lan', address: '127.0.0.1' },
    ])
    const { body: credential } = await call('GET', `/credentials/${used.claims[0].credential_id}`)
    expect(credential.acl).toEqual(['bind:*.cam01.site.test', 'bind:cam01.extra.test'])
    const { body: devices } = await call('GET', '/devices')
    expect(devices.devices).toMatchObject([
      { name: 'cam01', tags: ['camera', 'hall-b'], provisioned: true, state: 'online' },
    ])
  })

  it('gets a name of its host name below the shared domain of the gateway', async () => {
    const { invite } = await startSite({ reservedDomain: '*.site.test' })
    const joined = await enrol((await invite()).join_string)
    expect(joined).toMatchObject({ name: 'device-7', agentDomain: 'device-7.site.test' })
  })

  it('is numbered where the host name is taken, or refused where the name was chosen', async () => {
    const { invite } = await startSite()
    const terms = { domain: '*.{name}.site.test', max_uses: 3, expires_at: inAnHour() }
    const { join_string: text } = await invite(terms)
    const hosts = ['cam', 'CAM.lan', 'cam']
    const names = []
    for (const hostname of hosts) names.push((await enrol(text, { hostname })).name)
    expect(names).toEqual(['cam', 'cam-2', 'cam-3'])
    const named = await invite({ name: 'cam', domain: '*.{name}.site.test' })
    const refused = await failureOf(named.join_string)
    expect(refused.problem).toBe('name-refused')
    expect(refused.message).toMatch(/A device named cam exists.*The invitation was not used\.$/)
    const nameless = await invite({ domain: '*.{name}.site.test' })
    expect((await failureOf(nameless.join_string, { hostname: '___' })).problem).toBe(
      'name-refused',
    )
    expect((await enrol(nameless.join_string, { hostname: 'ok' })).name).toBe('ok')
  })

  it('learns which names are taken, also with a name that has more than the host name', async () => {
    const { running, invite } = await startSite()
    const { database, botUsers } = running.gateway.parts
    const numbers = ['', ...Array.from({ length: 98 }, (_, n) => `-${n + 2}`)]
    await database.change(() => {
      for (const [n, number] of numbers.entries()) {
        const [id, name] = [`bot_${n}`, `device-7-hall${number}`]
        botUsers.insert({ id, name, active: true, quotas: {}, createdAt: 0 })
      }
    })
    const made = await invite({ name: '{name}-hall', domain: '*.{name}.site.test' })
    const { message } = await failureOf(made.join_string)
    expect(message).toContain('All names from device-7-hall to device-7-hall-99 are taken.')
  })

  const own = { reservedDomain: '*.site.test', apiHosts: ['gw.site.test', 'a.deep.site.test'] }
  it.each([
    ['the shared domain', { domain: '*.site.test' }],
    ['domains of their own', { domain: '*.{name}.site.test' }],
    ['rules for names', { domain: null, acl: ['bind:{name}.site.test'] }],
  ])('gets no given name by its host name, with %s', async (_, terms) => {
    const { running, call, invite } = await startSite(own)
    await call('POST', '/reserved_domains', { domain: 'www.site.test' })
    await call('POST', '/reserved_domains', { domain: '*.shop.site.test' })
    await call('POST', '/reserved_domains', { domain: 'x.y.below.site.test' })
    const session = await connectSdk(running, { authtoken: running.authtoken })
    await bind(session, 'live.site.test')
    await bind(session, 'in.busy.site.test')
    const end = { max_uses: 20, expires_at: inAnHour() }
    const { join_string: text } = await invite({ ...terms, ...end })
    const nameOf = async (hostname: string) => (await enrol(text, { hostname })).name
    for (const given of ['gw', 'deep', 'www', 'shop', 'below', 'live', 'busy']) {
      expect(await nameOf(given)).toBe(`${given}-2`)
    }
    expect(await nameOf('free')).toBe('free')
    const { body } = await call('GET', '/credentials')
    expect(JSON.stringify(body)).not.toMatch(/(gw|www|shop|live)\.site\.test/)
    const named = await invite({ name: 'www', domain: '*.site.test' })
    expect((await enrol(named.join_string)).agentDomain).toBe('www.site.test')
  })

  it('gets the name of a deleted device, and any name below a gateway at the top', async () => {
    const { call, invite } = await startSite({ apiHosts: ['site.test'] })
    const terms = { domain: '*.{name}.site.test' }
    const nameOf = async () => (await enrol((await invite(terms)).join_string)).name
    expect(await nameOf()).toBe('device-7')
    const { body } = await call('GET', '/bot_users')
    const { id } = body.bot_users.find((it: { name: string }) => it.name === 'device-7')
    expect((await call('DELETE', `/bot_users/${id}`)).status).toBe(204)
    expect(await nameOf()).toBe('device-7')
  })

  it('keeps its name with a new invitation if it proves its authtoken', async () => {
    const { invite } = await startSite()
    const terms = { domain: '*.{name}.site.test' }
    const first = await enrol((await invite(terms)).join_string)
    const wrong = new Secret(`${first.authtoken.reveal().slice(0, -4)}0000`)
    const other = await enrol((await invite(terms)).join_string, { earlierAuthtoken: wrong })
    expect(other.name).toBe('device-7-2')
    const [id] = first.authtoken.reveal().split('_')
    const stored = new Secret(`${id}_${hashToken(first.authtoken.reveal())}`)
    const thief = await enrol((await invite(terms)).join_string, { earlierAuthtoken: stored })
    expect(thief.name).toBe('device-7-3')
    const earlierAuthtoken = first.authtoken
    const again = await enrol((await invite(terms)).join_string, { earlierAuthtoken })
    expect(again.name).toBe('device-7')
  })
})

it('replaces the rules of a device that joins again', async () => {
  const tcpListen = somePorts()
  const { running, invite } = await startSite({ tcpListen })
  const [one, other] = [0, 1].map((n) => `${tcpListen.host}:${tcpListen.first + n}`)
  const join = async (addresses: (string | undefined)[], earlierAuthtoken?: Secret) => {
    const acl = addresses.map((address) => `bind:${address}`)
    const { join_string } = await invite({ name: 'cam01', domain: '*.{name}.site.test', acl })
    return enrol(join_string, earlierAuthtoken && { earlierAuthtoken })
  }
  const codesOf = async ({ authtoken, name }: Joined) => {
    expect(name).toBe('cam01')
    const session = await connectSdk(running, { authtoken })
    const bound = [one, other].map((address) =>
      sdkCode(bindTcp(session, address ? { address } : {})),
    )
    const codes = await Promise.all(bound)
    await session.close()
    return codes
  }
  const first = await join([one])
  expect(await codesOf(first)).toEqual([undefined, 'ERR_NGROK_316'])
  const second = await join([other], first.authtoken)
  expect(await codesOf(second)).toEqual(['ERR_NGROK_316', undefined])
  const third = await join([one, other], second.authtoken)
  expect(await codesOf(third)).toEqual([undefined, undefined])
})

describe('an invitation', () => {
  it('lets in no second device, and says who used it', async () => {
    const { invite } = await startSite()
    const { join_string: text } = await invite({ domain: '*.{name}.site.test' })
    await enrol(text, { hostname: 'First.run-curl-evil' })
    const { problem, message } = await failureOf(text, { hostname: 'thief' })
    expect(problem).toBe('used')
    expect(message).toMatch(/used at 20.* by first from 127\.0\.0\.1\..*delete its authtoken cr_/)
  })

  it('lets in as many devices as it says, also when they come at the same moment', async () => {
    const { call, invite } = await startSite()
    const terms = { domain: '*.{name}.site.test', max_uses: 2, expires_at: inAnHour() }
    const made = await invite(terms)
    const outcomes = await Promise.allSettled(
      Array.from({ length: 6 }, () => enrol(made.join_string)),
    )
    const names = outcomes.flatMap((it) => (it.status === 'fulfilled' ? [it.value.name] : []))
    expect(names.sort()).toEqual(['device-7', 'device-7-2'])
    expect((await call('GET', `/invites/${made.id}`)).body).toMatchObject({ uses: 2 })
    expect((await call('GET', '/credentials')).body.credentials).toHaveLength(3)
  })

  it('ends by the clock of the gateway, and when it is withdrawn', async () => {
    const { call, invite } = await startSite()
    const soon = { expires_at: new Date(Date.now() + 1_000).toISOString() }
    const short = await invite({ ...soon, domain: '*.{name}.site.test' })
    await eventually(async () =>
      expect((await call('GET', `/invites/${short.id}`)).body.state).toBe('expired'),
    )
    expect((await failureOf(short.join_string)).problem).toBe('expired')
    const claim = newClaim()
    const made = await invite({ domain: '*.{name}.site.test' })
    await enrol(made.join_string, { claim })
    expect((await call('DELETE', `/invites/${made.id}`)).status).toBe(204)
    expect((await failureOf(made.join_string, { claim })).problem).toBe('withdrawn')
    expect((await call('GET', `/invites/${made.id}`)).body.state).toBe('withdrawn')
  })

  it('gives no further authtoken to a device whose authtoken was revoked', async () => {
    const { call, invite } = await startSite()
    const claim = newClaim()
    const made = await invite({ domain: '*.{name}.site.test' })
    await enrol(made.join_string, { claim })
    const [{ credential_id: id }] = (await call('GET', `/invites/${made.id}`)).body.claims
    await call('DELETE', `/credentials/${id}`)
    expect((await failureOf(made.join_string, { claim })).problem).toBe('used')
  })

  it('gets one answer for an unknown id and a wrong secret, and changes nothing', async () => {
    const { running, call, invite } = await startSite()
    const made = await invite({ domain: '*.{name}.site.test' })
    const { joinString } = requestFor(made.join_string)
    const wrong = { ...joinString, secret: new Secret('A'.repeat(22)) }
    const unknown = { ...joinString, id: '0'.repeat(16) }
    const answers = [
      await failureOf(made.join_string, { joinString: wrong }),
      await failureOf(made.join_string, { joinString: unknown }),
    ]
    expect(answers[0]?.problem).toBe('not-found')
    expect(answers[0]?.message).toBe(answers[1]?.message)
    await call('DELETE', `/invites/${made.id}`)
    expect((await failureOf(made.join_string, { joinString: wrong })).problem).toBe('not-found')
    const stored = JSON.stringify(running.gateway.parts.inviteStore.get(made.id))
    expect(stored).not.toContain(joinString.secret.reveal())
    expect(stored).toContain(hashToken(joinString.secret.reveal()))
    expect(running.logText()).not.toContain(joinString.secret.reveal())
  })

  it('leaves entries in the audit trail: created, used, refused, withdrawn', async () => {
    const { call, invite } = await startSite()
    const made = await invite({ description: 'for hall B', domain: '*.{name}.site.test' })
    await enrol(made.join_string)
    await failureOf(made.join_string)
    await call('DELETE', `/invites/${made.id}`)
    const { body } = await call('GET', '/audit')
    const entries = body.entries.map(
      (it: { action: string; result: string; who: { kind: string } }) =>
        `${it.who.kind} ${it.action} ${it.result}`,
    )
    expect(entries.slice(0, 7)).toEqual([
      'api-key invite.delete ok',
      'invite invite.use used',
      'invite credential.create ok',
      'invite bot_user.create ok',
      'invite reserved_domain.create ok',
      'invite invite.use ok',
      'api-key invite.create ok',
    ])
    expect(JSON.stringify(body)).not.toContain(made.join_string)
  })
})

describe('accounts', () => {
  async function startTenants() {
    const site = await startSite()
    const { call } = site
    const tenant = async (name: string) => {
      const { body: user } = await call('POST', '/bot_users', { name })
      const { body: key } = await call('POST', '/api_keys', { owner_id: user.id, name })
      await call('POST', '/reserved_domains', {
        domain: `*.${name}.test`,
        owner_id: user.id,
      })
      return { id: user.id as string, key: key.token as string }
    }
    return { ...site, a: await tenant('a'), b: await tenant('b') }
  }

  it('invite into themselves alone, with names of their own', async () => {
    const { running, call, invite, a, b } = await startTenants()
    const ask = (body: object) => call('POST', '/invites', body, a.key)
    const refused = async (body: object) => {
      const { status, body: error } = await ask(body)
      return `${status} ${error.error_code}`
    }
    const { msg } = (await ask({ domain: '*.{name}.b.test' })).body
    expect(msg).toContain('The domain *.{name}.b.test overlaps with')
    expect(await refused({ owner_id: b.id })).toBe('403 ERR_GATEWAY_KEY_OWNER')
    expect(await refused({ acl: ['bind:x.b.test'] })).toBe('403 ERR_GATEWAY_KEY_OWNER')
    expect(await refused({ acl: ['bind:{name}.b.test'] })).toBe('403 ERR_GATEWAY_KEY_OWNER')
    expect(await refused({ acl: ['*'] })).toBe('403 ERR_GATEWAY_KEY_OWNER')
    expect(await refused({ domain: '*.b.test' })).toBe('400 ERR_NGROK_413')
    expect(await refused({ domain: '*.{name}.b.test' })).toBe('409 ERR_NGROK_850')
    const made = await invite({ domain: '*.{name}.a.test' }, a.key)
    expect((await call('GET', `/invites/${made.id}`, undefined, b.key)).status).toBe(404)
    expect((await call('DELETE', `/invites/${made.id}`, undefined, b.key)).status).toBe(404)
    expect((await call('GET', '/invites', undefined, b.key)).body.invites).toEqual([])
    const { authtoken } = await enrol(made.join_string)
    expect(await codeOfDevice(running, authtoken, 'cam.device-7.a.test')).toBeUndefined()
    const { body: domains } = await call('GET', '/reserved_domains', undefined, a.key)
    expect(domains.reserved_domains[0]).toMatchObject({
      domain: '*.device-7.a.test',
      owner_id: a.id,
    })
  })

  it('stay within their quotas, and the invitation is not used', async () => {
    const { call, invite, a } = await startTenants()
    await call('PATCH', `/bot_users/${a.id}`, { quotas: { credentials: 0 } })
    const made = await invite({ domain: '*.a.test' }, a.key)
    const refused = await failureOf(made.join_string)
    expect(refused.problem).toBe('not-allowed')
    expect(refused.message).toMatch(/quota of authtokens.*The invitation was not used\.$/)
    expect((await call('GET', `/invites/${made.id}`)).body.uses).toBe(0)
    await call('PATCH', `/bot_users/${a.id}`, { quotas: { credentials: 1 } })
    expect((await enrol(made.join_string)).name).toBe('device-7')
  })

  it('number devices with one host name', async () => {
    const { invite, a } = await startTenants()
    const terms = { domain: '*.{name}.a.test', max_uses: 2, expires_at: inAnHour() }
    const { join_string: text } = await invite(terms, a.key)
    expect([(await enrol(text)).name, (await enrol(text)).name]).toEqual(['device-7', 'device-7-2'])
  })
})

describe('the port for agents', () => {
  const attempt = async (running: RunningGateway) => {
    const { host, port } = running.addresses.agent
    const socket = connect({
      host,
      port,
      rejectUnauthorized: false,
      ALPNProtocols: [JOIN_PROTOCOL],
    })
    onTestFinished(() => void socket.destroy())
    let text = ''
    socket.on('data', (chunk) => {
      text += chunk
    })
    socket.on('error', () => {})
    await eventually(() => expect(text).toContain('\n'))
    return { socket, said: () => text, answers: () => text.split('\n').filter(Boolean).slice(1) }
  }
  const isClosed = (socket: TLSSocket) => eventually(() => expect(socket.destroyed).toBe(true))

  it('says no secret to a stranger, and closes on messages that are too large or no messages', async () => {
    const { running } = await startSite()
    const large = await attempt(running)
    expect(Object.keys(JSON.parse(large.said()))).toEqual(['v', 'ca', 'now'])
    large.socket.write('x'.repeat(10_000))
    await isClosed(large.socket)
    expect(large.answers()).toEqual([])
    for (const text of ['GET / HTTP/1.1\n', '{"v":1}\n', '[]\n', '{"v":1,"id":7}\n']) {
      const other = await attempt(running)
      other.socket.write(text)
      await isClosed(other.socket)
      expect(JSON.parse(other.answers()[0] ?? '')).toMatchObject({ error: 'invalid-request' })
    }
    const newer = await attempt(running)
    newer.socket.write('{"v":2}\n')
    await isClosed(newer.socket)
    expect(JSON.parse(newer.answers()[0] ?? '')).toMatchObject({ error: 'newer-device' })
  })

  it('closes a connection that is silent, or sends one byte at a time', async () => {
    const { running } = await startSite({ agentLimits: { joinMs: 1_000 } })
    const silent = await attempt(running)
    const slow = await attempt(running)
    const timer = setInterval(() => slow.socket.write(' '), 50)
    onTestFinished(() => clearInterval(timer))
    await isClosed(silent.socket)
    await isClosed(slow.socket)
    expect([...silent.answers(), ...slow.answers()]).toEqual([])
  })

  it('still lets a device in while a thousand connections are silent', async () => {
    const { running, invite } = await startSite()
    const { join_string: text } = await invite({ domain: '*.{name}.site.test' })
    const { host, port } = running.addresses.agent
    const silent: TLSSocket[] = []
    onTestFinished(() => {
      for (const socket of silent) socket.destroy()
    })
    for (let n = 0; n < 1_000; n += 1) {
      const options = { host, port, rejectUnauthorized: false, ALPNProtocols: [JOIN_PROTOCOL] }
      const socket = connect(options).resume()
      socket.on('error', () => {})
      silent.push(socket)
      if (n % 50 === 49) await new Promise((resolve) => socket.once('secureConnect', resolve))
    }
    expect((await enrol(text)).name).toBe('device-7')
    // At most as many as may join at the same time are kept.
    await eventually(() =>
      expect(silent.filter(({ closed }) => !closed).length).toBeLessThanOrEqual(200),
    )
  })

  it('slows an address with many wrong secrets, and lets a right one in at once', async () => {
    const { running, call, invite } = await startSite()
    const { join_string: text } = await invite({ domain: '*.{name}.site.test' })
    const { joinString } = requestFor(text)
    const wrong = { ...joinString, secret: new Secret('A'.repeat(22)) }
    const failures = []
    for (let n = 0; n < 12; n += 1) {
      failures.push((await failureOf(text, { joinString: wrong })).problem)
      if (failures.includes('too-many-failures')) break
    }
    expect(failures.slice(0, 10)).toEqual(Array.from({ length: 10 }, () => 'not-found'))
    expect(failures.at(-1)).toBe('too-many-failures')
    expect((await enrol(text)).name).toBe('device-7')
    const { body } = await call('GET', '/audit?filter=obj.action=="invite.use"')
    const refused = body.entries.filter(({ result }: { result: string }) => result === 'not-found')
    expect(refused).toHaveLength(5)
    expect(running.logText()).not.toContain('A'.repeat(22))
  })

  it.each(['used', 'withdrawn'])('writes few entries for a string that is %s', async (state) => {
    const { running, call, invite } = await startSite()
    const made = await invite({ domain: '*.{name}.site.test' })
    const claim = newClaim()
    await enrol(made.join_string, { claim })
    if (state === 'withdrawn') await call('DELETE', `/invites/${made.id}`)
    const { joinString } = requestFor(made.join_string)
    for (let n = 0; n < 14; n += 1) {
      const { socket } = await attempt(running)
      const { id, secret } = joinString
      const message = { v: 1, id, secret: secret.reveal(), claim: newClaim().reveal() }
      socket.end(`${JSON.stringify({ ...message, hostname: 'x' })}\n`)
      await isClosed(socket)
    }
    const { body } = await call('GET', '/audit?filter=obj.action=="invite.use"')
    const refused = body.entries.filter(({ result }: { result: string }) => result === state)
    expect(refused).toHaveLength(5)
    expect(refused[0].target.id).toBe(made.id)
  })

  it('serves agents that offer other protocols or none', async () => {
    const { running } = await startSite()
    const { host, port } = running.addresses.agent
    for (const ALPNProtocols of [undefined, ['h2', 'http/1.1']]) {
      const socket = connect({
        host,
        port,
        rejectUnauthorized: false,
        ...(ALPNProtocols && { ALPNProtocols }),
      })
      onTestFinished(() => void socket.destroy())
      await new Promise((resolve, reject) => {
        socket.once('secureConnect', resolve)
        socket.once('error', reject)
      })
    }
    expect(await codeOfDevice(running, running.authtoken, 'x.site.test')).toBeUndefined()
  })

  it('serves devices after a renewal, with the same pin, and with a certificate of its owner', async () => {
    const folder = temporaryFolder()
    const { log } = captureLog()
    const other = await CertificateAuthority.open({ folder, clock: systemClock, log })
    const { certPem, keyPem } = await other.issue(['*.site.test'])
    const tls = { certPath: join(folder, 'own.pem'), keyPath: join(folder, 'own.key') }
    writeFileSync(tls.certPath, certPem)
    writeFileSync(tls.keyPath, keyPem)
    const clock = new ManualClock()
    const { running, invite } = await startSite({ tls, clock })
    const end = new Date(clock.now() + 100 * 86_400_000).toISOString()
    const { join_string: text } = await invite({ expires_at: end, domain: '*.{name}.site.test' })
    const { caCertPem, server } = running.gateway.parts.certificates
    clock.stepWall(61 * 86_400_000)
    await clock.advance(CERTIFICATE_CHECK_MS)
    await eventually(() =>
      expect(running.gateway.parts.certificates.server.certPem).not.toBe(server.certPem),
    )
    const joined = await enrol(text)
    expect(pinOf(joined.caPem)).toBe(pinOf(caCertPem))
    // For agents, the certificate of the owner does not count: it is for visitors.
    expect(pinOf(joined.caPem)).not.toBe(pinOf(other.certPem))
  })
})
