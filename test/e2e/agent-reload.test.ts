import { readFileSync, writeFileSync } from 'node:fs'
import { createServer, get } from 'node:http'
import { type AddressInfo, createServer as createTcpServer } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createDeferred } from '../../src/base/deferred.ts'
import { formatListenAddress } from '../../src/base/listen-address.ts'
import { hashToken } from '../../src/base/token.ts'
import { eventually } from '../helpers/eventually.ts'
import { MAIN } from '../helpers/program.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { ended, hasEnded, ReloadableProgram } from '../helpers/reloadable-program.ts'
import { startGateway } from '../helpers/running-gateway.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const API_TOKEN = 'reload-token-of-at-least-20'
const PROVISIONED = 'provisioned-token-of-at-least-20'
const PROVISIONED_SETTING = `AGENT_API_TOKEN_SHA256=${hashToken(PROVISIONED)}\n`
const HOST = 'a.site.test'
const EVERY_MS = 20

/** An agent as a process, with a tunnel to a service whose `/slow` answers when it is told to. */
async function agentProcess({ others = [] }: { others?: readonly string[] } = {}) {
  const gateway = await startGateway({ holdMs: 60_000 })
  const { addresses, authtoken } = gateway
  const serverAddr = formatListenAddress(addresses.agent).replace('127.0.0.1', 'localhost')
  const slow = createDeferred()
  let waiting = 0
  const service = createServer(async ({ url }, response) => {
    if (url !== '/slow') return void response.end('hello')
    waiting += 1
    response.write('the ')
    await slow.promise
    response.end('whole')
  })
  await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void service.close().closeAllConnections())
  const { port } = service.address() as AddressInfo
  const folder = temporaryFolder()
  const main = join(folder, 'program.mjs')
  const change = (program: string) => writeFileSync(main, program)
  change(`await import(${JSON.stringify(MAIN)})`)
  const agent = new ReloadableProgram(join(folder, 'notify'), {
    args: ['run', '--json'],
    main,
    cwd: folder,
    env: {
      AGENT_API_TOKEN: API_TOKEN,
      AGENT_DOMAIN: 'device.site.test',
      LOG_LEVEL: 'info',
      SVC_SERVER_ADDR: [...others, serverAddr].join(','),
      SVC_INGRESS_ADDR: formatListenAddress(addresses.https),
      SVC_CA_CERT: addresses.caCertPath,
      SVC_AUTHTOKEN: authtoken.reveal(),
    },
  })
  onTestFinished(() => agent.stop())
  const { agent_api: api } = await agent.program.ready<{ agent_api: string }>()
  const call = (method: string, path: string, body?: object, token = API_TOKEN) =>
    fetch(`${api}${path}`, {
      method,
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      ...(body && { body: JSON.stringify(body) }),
    })
  /** Over the socket of the command line. */
  const callLocal = (path: string) =>
    new Promise<string>((resolve, reject) => {
      const socketPath = join(folder, 'data/local.sock')
      get({ socketPath, path, headers: { host: 'localhost' } }, (response) => {
        let text = ''
        response.on('data', (chunk) => {
          text += chunk
        })
        response.on('end', () => resolve(text))
      }).on('error', reject)
    })
  const specOf = (domain: string) => ({
    ...{ protocol: 'http', forwards_to: `localhost:${port}`, domain },
    // The default policy has a limit, and these visitors do not count theirs.
    policy: {},
  })
  const visit = async (path = '/') => {
    const ingress = `http://${formatListenAddress(addresses.http)}`
    const { status, text } = await publicRequest({ ingress, host: HOST, path })
    return status === 200 ? text : `${status} ${text}`
  }
  expect((await call('POST', '/tunnels', specOf(HOST))).ok).toBe(true)
  await eventually(async () => expect(await visit()).toBe('hello'))
  const { sessions, registry } = gateway.gateway.parts
  return {
    ...{ ...gateway, sessions, registry, agent, call, callLocal, specOf, visit, folder, change },
    release: slow.resolve,
    waiting: () => waiting,
  }
}

/** `host:port` where connections are taken, and nothing is ever said. */
async function silentAddress(): Promise<string> {
  const server = createTcpServer(() => {})
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  return `localhost:${(server.address() as AddressInfo).port}`
}

type OnProcess = Awaited<ReturnType<typeof agentProcess>>

/** Visitors who come all the time, until what they got is asked for: all but `hello`. */
function visitors({ visit }: OnProcess) {
  let isOver = false
  const visits: Promise<string>[] = []
  const coming = (async () => {
    while (!isOver) {
      visits.push(visit().catch((error: Error) => error.message))
      await new Promise((resolve) => setTimeout(resolve, EVERY_MS))
    }
  })()
  return {
    count: () => visits.length,
    end: async () => {
      isOver = true
      await coming
      return (await Promise.all(visits)).filter((answer) => answer !== 'hello')
    },
  }
}

/** What the last line of the service manager says: one sentence. */
const lastStatus = ({ agent }: OnProcess) =>
  agent.told.filter((text) => text.startsWith('READY=1')).at(-1)

describe('a reload of the agent', () => {
  it('puts a new process in its place: no visitor waits for nothing, and what is under way ends whole', async () => {
    const on = await agentProcess()
    const slow = on.visit('/slow')
    await eventually(() => expect(on.waiting()).toBe(1))
    const coming = visitors(on)
    await eventually(() => expect(coming.count()).toBeGreaterThan(5))
    on.agent.signal('SIGHUP')
    const before = await on.agent.replaced()
    const seen = coming.count()
    await eventually(() => expect(coming.count()).toBeGreaterThan(seen + 20))
    // The old process is there for as long as something is under way in it.
    expect(hasEnded(before)).toBe(false)
    on.release()
    expect(await slow).toBe('the whole')
    await ended(before)
    expect(await coming.end()).toEqual([])
    // One session of one device: nobody has been told of a second one.
    await eventually(() => expect(on.sessions.size).toBe(1))
    expect([...on.sessions.all()].map(({ duplicate }) => duplicate)).toEqual([undefined])
    expect(on.logText()).not.toContain('connected twice')
    expect(on.agent.told.filter((text) => text.startsWith('RELOADING=1'))).toHaveLength(1)
    expect(on.agent.told.filter((text) => text.startsWith('READY=1'))).toHaveLength(2)
    expect(on.agent.told.filter((text) => text.startsWith('STOPPING=1'))).toHaveLength(0)
  })

  it('loses no change that was answered, and serves the same API at the same address', async () => {
    const on = await agentProcess()
    const made: { domain: string; status: number; retryAfter: string | null }[] = []
    let isOver = false
    const making = (async () => {
      for (let number = 1; !isOver; number += 1) {
        const domain = `t${number}.site.test`
        const { status, headers } = await on.call('POST', '/tunnels', on.specOf(domain))
        made.push({ domain, status, retryAfter: headers.get('retry-after') })
      }
    })()
    const reading: number[] = []
    const reader = (async () => {
      while (!isOver) reading.push((await on.call('GET', '/status')).status)
    })()
    await eventually(() => expect(made.length).toBeGreaterThan(3))
    await on.agent.reload()
    const count = made.length
    await eventually(() => expect(made.length).toBeGreaterThan(count + 3))
    isOver = true
    await Promise.all([making, reader])
    expect(new Set(reading)).toEqual(new Set([200]))
    for (const { status, retryAfter } of made) {
      expect([status, retryAfter]).toEqual(status < 300 ? [status, null] : [503, '1'])
    }
    const tunnels = (await (await on.call('GET', '/tunnels')).json()) as { domain: string }[]
    const kept = tunnels.map(({ domain }) => domain)
    const answered = made.filter(({ status }) => status < 300).map(({ domain }) => domain)
    expect(kept.sort()).toEqual([...answered, HOST].sort())
  })

  it('can be done again and again, and two at once are one', async () => {
    const on = await agentProcess()
    const coming = visitors(on)
    for (let round = 0; round < 3; round += 1) {
      on.agent.signal('SIGHUP')
      on.agent.signal('SIGHUP')
      await ended(await on.agent.replaced())
    }
    expect(await coming.end()).toEqual([])
    expect(on.agent.told.filter((text) => text.startsWith('MAINPID='))).toHaveLength(3)
    await eventually(() => expect(on.sessions.size).toBe(1))
    expect((await on.call('GET', '/tunnels')).status).toBe(200)
  })

  it('goes to the address where the old process serves, whatever another one does', async () => {
    const silent = await silentAddress()
    const on = await agentProcess({ others: [silent] })
    const coming = visitors(on)
    const failedTries = () =>
      on.agent.program.stderr
        .split('\n')
        .filter((line) => line.includes('link down') && line.includes(silent)).length
    const before = failedTries()
    await on.agent.reload()
    expect(on.agent.told.some((text) => text.includes('the reload failed'))).toBe(false)
    expect([before, failedTries()]).toEqual([1, 1])
    expect(await coming.end()).toEqual([])
    expect(await (await on.call('GET', '/status')).json()).toMatchObject({ link: { state: 'up' } })
  })

  it('takes up settings that were changed in the file', async () => {
    const on = await agentProcess()
    writeFileSync(join(on.folder, '.env'), `AGENT_MAX_TUNNELS=1\n${PROVISIONED_SETTING}`)
    await on.agent.reload()
    await eventually(async () => {
      expect((await on.call('GET', '/status', undefined, PROVISIONED)).status).toBe(200)
    })
    await eventually(async () => {
      const answer = await on.call('POST', '/tunnels', on.specOf('b.site.test'))
      expect(await answer.json()).toMatchObject({ code: 'too-many-tunnels' })
    })
  })
})

/** In the place of the program: what it does where the real one would say something. */
const saying = (what: string, act: string) => `
const send = process.send.bind(process)
process.send = (message, ...rest) => {
  if (message === '${what}') { ${act} }
  return send(message, ...rest)
}
await import(${JSON.stringify(MAIN)})
`

describe('a reload of the agent that fails', () => {
  it.each([
    ['cannot start', 'process.exit(3)', /ended with 3/],
    ['is wrongly set', `process.env.AGENT_MAX_TUNNELS = 'none'`, /AGENT_MAX_TUNNELS must be/],
    ['cannot connect', `process.env.SVC_CA_CERT = 'another.pem'`, /The new process has no link/],
    [
      'cannot listen where it should, as it finds out late',
      `process.env.AGENT_LISTEN = '203.0.113.7:1'`,
      /does not have the address/,
    ],
    [
      'ends when it has the data folder',
      `process.on('message', () => process.exit(4)); process.send('prepared'); await new Promise(() => {})`,
      /ended with 4/,
    ],
    [
      'is killed when it has everything',
      saying('serving', `process.kill(process.pid, 'SIGKILL'); return true`),
      /ended with SIGKILL/,
    ],
  ])('leaves the old process serving when the new one %s', async (_, program, reason) => {
    const on = await agentProcess()
    const another = await startGateway()
    writeFileSync(join(on.folder, 'another.pem'), readFileSync(another.addresses.caCertPath))
    const coming = visitors(on)
    const { pid } = on.agent
    on.change(`${program}\nawait import(${JSON.stringify(MAIN)})`)
    on.agent.signal('SIGHUP')
    await eventually(() => expect(lastStatus(on)).toMatch(/; the reload failed: /))
    expect(on.agent.program.stderr).toMatch(reason)
    expect(on.agent.program.stderr).toContain('the reload failed, this process continues')
    expect(on.agent.pid).toBe(pid)
    // It takes changes, and has its names; 202 while its link comes back.
    expect((await on.call('POST', '/tunnels', on.specOf('b.site.test'))).ok).toBe(true)
    const local = await on.callLocal('/tunnels')
    expect(local).toContain('b.site.test')
    await eventually(() => expect(on.registry.size).toBe(3))
    expect(await coming.end()).toEqual([])
    expect(on.agent.program.stderr).not.toContain('another process changed the database')

    on.change(`await import(${JSON.stringify(MAIN)})`)
    await on.agent.reload()
    expect(await on.visit()).toBe('hello')
    await eventually(() => expect(on.registry.size).toBe(3))
    expect(await on.callLocal('/tunnels')).toContain('b.site.test')
  })
})

describe('a new process that is ready, and never says so', () => {
  it('has taken and written nothing when the old one ends it, and that takes changes again', async () => {
    const on = await agentProcess()
    // A token that it is to take up, which opens nothing before.
    writeFileSync(join(on.folder, '.env'), PROVISIONED_SETTING)
    on.change(saying('serving', `console.error('ready, and silent'); return true`))
    on.agent.signal('SIGHUP')
    const taken: string[] = []
    let number = 0
    await eventually(async () => {
      // Either of them answers, and writes when a token was used last where it may.
      expect((await on.call('GET', '/status')).status).toBe(200)
      number += 1
      const domain = `t${number % 50}.site.test`
      if ((await on.call('PUT', `/tunnels/${domain}`, on.specOf(domain))).ok) taken.push(domain)
      expect(lastStatus(on)).toMatch(/; the reload failed: /)
    })
    expect(on.agent.program.stderr).toContain('ready, and silent')
    expect(on.agent.program.stderr).not.toContain('another process changed the database')
    expect((await on.call('GET', '/status', undefined, PROVISIONED)).status).toBe(401)
    expect((await on.call('PUT', '/tunnels/c.site.test', on.specOf('c.site.test'))).ok).toBe(true)
    const tunnels = (await (await on.call('GET', '/tunnels')).json()) as { domain: string }[]
    const kept = tunnels.map(({ domain }) => domain)
    expect(kept).toEqual(expect.arrayContaining(taken))
  })
})

describe('a new process that dies while the old one ends what is under way', () => {
  it('is missed at once, and the old one ends so that another one is started', async () => {
    const on = await agentProcess()
    const slow = on.visit('/slow')
    await eventually(() => expect(on.waiting()).toBe(1))
    on.agent.signal('SIGHUP')
    const before = await on.agent.replaced()
    on.agent.kill()
    await eventually(() => {
      expect(on.agent.told.at(-1)).toBe(
        `MAINPID=${before}\nSTOPPING=1\nSTATUS=the new process ended with SIGKILL`,
      )
    })
    // What is under way is not cut for that.
    expect(hasEnded(before)).toBe(false)
    on.release()
    expect(await slow).toBe('the whole')
    expect(await on.agent.program.ended).toMatchObject({ code: 75 })
    expect(on.agent.program.stderr).toContain('this process must be replaced')
  })
})

describe('an agent that is killed while it is reloaded', () => {
  it('leaves everything to the new process, once that has the folder', async () => {
    const on = await agentProcess()
    const coming = visitors(on)
    const { pid } = on.agent
    const note = `(await import('node:fs')).writeFileSync('pid', String(process.pid))`
    on.change(`${note}\n${saying('serving', `process.kill(process.ppid, 'SIGKILL')`)}`)
    on.agent.signal('SIGHUP')
    await ended(pid)
    const next = Number(readFileSync(join(on.folder, 'pid'), 'utf8'))
    onTestFinished(() => process.kill(next, 'SIGKILL') && ended(next))
    await eventually(async () => {
      expect((await on.call('POST', '/tunnels', on.specOf('b.site.test'))).status).toBe(200)
    })
    await eventually(() => expect(on.sessions.size).toBe(1))
    expect(await coming.end()).toEqual([])
  })

  it('leaves the folder to whoever is started next, before that', async () => {
    const on = await agentProcess()
    const { pid } = on.agent
    const note = `(await import('node:fs')).writeFileSync('pid', String(process.pid))`
    on.change(`${note}\n${saying('prepared', `process.kill(process.ppid, 'SIGKILL')`)}`)
    on.agent.signal('SIGHUP')
    await ended(pid)
    await ended(Number(readFileSync(join(on.folder, 'pid'), 'utf8')))
    await eventually(() => {
      expect(on.agent.program.stderr).toContain('the old process has ended during the reload')
    })
    await eventually(() => expect(on.sessions.size).toBe(0))
  })
})
