import { mkdirSync, statSync, writeFileSync } from 'node:fs'
import { createServer, request } from 'node:http'
import { connect } from 'node:net'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { describe, expect, it, onTestFinished } from 'vitest'
import * as z from 'zod'
import type { StatusView } from '../../src/api/status-view.ts'
import { TunnelSpecView } from '../../src/api/tunnel-view.ts'
import type { Finding } from '../../src/cli/doctor/finding.ts'
import { LocalAgent } from '../../src/cli/local/local-agent.ts'
import { eventually } from '../helpers/eventually.ts'
import { MAIN, Program, runProgram } from '../helpers/program.ts'
import { Site } from '../helpers/site.ts'
import { canMount, mountSmallDisk } from '../helpers/small-disk.ts'
import { somePorts } from '../helpers/some-ports.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const SERVICE = { SVC_SERVER_ADDR: '127.0.0.1:1', SVC_AUTHTOKEN: 'no-authtoken-of-anybody' }
const DENY = 'on_http_request:\n  - actions: [{type: deny}]\n'

/** An agent without a service, and its command line in the same folder. */
async function startAgent(env: Record<string, string> = {}) {
  const folder = temporaryFolder()
  const program = new Program({ args: ['run', '--json'], cwd: folder, env: { ...SERVICE, ...env } })
  onTestFinished(async () => void (await program.end()))
  await program.ready()
  const run = (...args: string[]) => runProgram({ args, cwd: folder, env: SERVICE })
  const json = async (...args: string[]) => JSON.parse((await run(...args, '--json')).stdout)
  return { folder, program, run, json }
}

/** Stops the site with the test. Resolves when its link is up. */
async function isLinked(site: Site): Promise<void> {
  onTestFinished(() => site.stop())
  await eventually(async () => {
    const { link } = (await (await site.call('GET', '/status')).json()) as StatusView
    expect(link.state).toBe('up')
  })
}

describe('the command line on the device', () => {
  it('says that the agent may have no open files left', async () => {
    const folder = temporaryFolder()
    const program = new Program({
      command: ['sh', '-c', 'ulimit -n 64 && exec "$0" "$@"', process.execPath, MAIN],
      args: ['run', '--json'],
      cwd: folder,
      env: SERVICE,
    })
    onTestFinished(async () => void (await program.end()))
    const { agent_api: api } = await program.ready<{ agent_api: string }>()
    const sockets = Array.from({ length: 64 }, () => connect(Number(new URL(api).port)))
    for (const socket of sockets) socket.on('error', () => {})
    onTestFinished(() => {
      for (const socket of sockets) socket.destroy()
    })
    await eventually(async () => {
      const { code, stderr } = await runProgram({ args: ['status'], cwd: folder, env: SERVICE })
      expect([code, stderr]).toEqual([1, expect.stringContaining('no open files left')])
    })
  })

  it('adds, shows, changes, lists and removes tunnels without a token', async () => {
    const { folder, run, json } = await startAgent()
    expect((await run('tunnels', 'list')).stdout).toContain('No tunnels')
    const told = ['--proxy-protocol', '2']
    const added = await run('tunnels', 'add', 'cam.site.test', '8001', ...told)
    expect([added.code, added.stdout]).toEqual([
      0,
      expect.stringMatching(/^https:\/\/cam\.site\.test: (?:offline|opening)\. \S/),
    ])
    writeFileSync(join(folder, 'deny.yaml'), DENY)
    expect(await json('tunnels', 'set-policy', 'cam', 'deny.yaml')).toMatchObject({
      domain: 'cam.site.test',
      policy: JSON.stringify({ on_http_request: [{ actions: [{ type: 'deny' }] }] }),
    })
    const shown = await run('tunnels', 'show', 'cam')
    expect(shown.stdout).toMatch(/^forwards_to +localhost:8001$/m)
    expect(shown.stdout).toMatch(/^policy\n\{\n {2}"on_http_request"/m)
    await json('tunnels', 'set-policy', 'cam', '--default')
    expect(await json('tunnels', 'show', 'cam')).toMatchObject({
      policy: expect.stringContaining('rate-limit'),
      // Another policy leaves the rest as it was.
      upstream_settings: { proxy_protocol: 2 },
    })
    expect((await run('tunnels', 'add', 'b.site.test', '1', '--proxy-protocol', '3')).code).toBe(2)
    const all = ['--http2', '--no-verify-tls', '--upstream-timeout', '9', '--health', '/alive']
    expect(
      await json('tunnels', 'add', 'nas.site.test', 'https://127.0.0.1', ...all),
    ).toMatchObject({
      forwards_to: 'https://127.0.0.1:443',
      upstream_settings: { timeout: 9, health: '/alive', http2: true, verify_tls: false },
    })
    expect((await run('tunnels', 'remove', 'nas')).code).toBe(0)
    const unlisted = await run('tunnels', 'add', 'app.site.test', 'unix:/run/app.sock')
    expect([unlisted.code, unlisted.stderr]).toEqual([
      1,
      expect.stringContaining('→ Add unix:/run/app.sock to AGENT_FORWARD_ALLOW in .env,'),
    ])
    const [listed] = await json('tunnels', 'list')
    expect(listed).toMatchObject({ domain: 'cam.site.test', state: 'waiting' })
    expect((await run('tunnels', 'list')).stdout).toMatch(
      /^https:\/\/cam\.site\.test +(?:offline|opening) +\d/m,
    )
    expect((await run('tunnels', 'remove', 'cam')).stdout).toBe('Removed cam.site.test.\n')
    expect(await json('tunnels', 'list')).toEqual([])
  })

  it('changes the policy of a tunnel and nothing else of it', async () => {
    const { folder, run, json } = await startAgent()
    await run('tunnels', 'add', 'cam.site.test', '8001', '--pooling')
    const agent = new LocalAgent(join(folder, 'data', 'local.sock'), {
      stderr: new PassThrough(),
      stop: new AbortController().signal,
    })
    const specs = () => agent.ask({ path: '/tunnels?view=spec' }, z.array(TunnelSpecView))
    const [spec] = await specs()
    const upstream = { timeout: 7, health: 'off' }
    await agent.ask({ method: 'PUT', path: '/tunnels', body: [{ ...spec, upstream }] }, z.unknown())
    writeFileSync(join(folder, 'deny.yaml'), DENY)
    await json('tunnels', 'set-policy', 'cam', 'deny.yaml')
    const policy = { on_http_request: [{ actions: [{ type: 'deny' }] }] }
    expect(await specs()).toEqual([{ ...spec, upstream, policy, pooling_enabled: true }])
  })

  it('says that systemd did not pass an authtoken that is on the device', async () => {
    const { folder } = await startAgent({ SVC_AUTHTOKEN: '' })
    const run = (env: Record<string, string>, ...args: string[]) =>
      runProgram({ args, cwd: folder, env: { ...SERVICE, SVC_AUTHTOKEN: '', ...env } })
    await run({}, 'tunnels', 'add', 'cam.site.test', '8001')
    expect((await run({}, 'status')).stdout).toContain('No authtoken is set.')
    mkdirSync(join(folder, 'credstore'))
    const path = join(folder, 'credstore/svc-authtoken')
    writeFileSync(path, 'some-authtoken')
    const { stdout } = await run({ SVC_AUTHTOKEN_FILE: path }, 'status')
    const [headline, advice] = stdout.split('\n')
    expect(headline).toBe('● The tunnel does not work. systemd did not pass the authtoken.')
    expect(advice).toBe(
      `  - systemd did not pass the credential ${path} to the agent. Restart the service: sudo systemctl restart device-agent.`,
    )
    const doctor = await run({ SVC_AUTHTOKEN_FILE: path }, 'doctor')
    expect(doctor.stdout).toMatch(/^✗ authtoken: systemd did not pass the credential /m)
    expect(doctor.stdout).toMatch(/^✗ link: \w+: as above$/m)
    expect(doctor.stdout).not.toContain('device-agent join')
  })

  it('names one first step everywhere on a device that has not joined', async () => {
    const none = { SVC_AUTHTOKEN: '', SVC_SERVER_ADDR: '' }
    const { folder } = await startAgent(none)
    const run = (...args: string[]) => runProgram({ args, cwd: folder, env: none })
    const { status } = JSON.parse((await run('status', '--json')).stdout)
    const step =
      'NAME is the name of this device. If the device has joined before, add --replace. For the'
    expect(status.link).toMatchObject({
      last_error: 'no authtoken is set',
      remedy: expect.stringMatching(/^Run device-agent gateway invite --name NAME on the gateway/),
    })
    expect(status.link.remedy).toContain(step)
    const { stdout } = await run('doctor', '--json')
    const findings: Finding[] = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    const failed = findings.filter(({ outcome }) => outcome === 'bad')
    const { remedy } = status.link
    expect(failed).toMatchObject([
      { check: 'authtoken', remedy },
      { check: 'link', remedy },
    ])
    expect(findings).toContainEqual({
      check: 'gateway',
      outcome: 'skipped',
      detail: 'skipped, this device has no gateway address and no authtoken',
      remedy: null,
    })
    expect(stdout).not.toContain('ngrok-agent.com')
  })

  it('fills the name of a joined device into the command that invites it again', async () => {
    const none = { SVC_AUTHTOKEN: '' }
    const { folder } = await startAgent(none)
    const run = (...args: string[]) =>
      runProgram({ args, cwd: folder, env: { ...SERVICE, ...none } })
    await run('tunnels', 'add', 'cam.site.test', '8001')
    const record = (name: string) => {
      const last = { invitation: 'in_1', pin: 'pin', joined: { name, url: null } }
      const text = JSON.stringify({ version: 1, last, claims: [] })
      writeFileSync(join(folder, 'data/join.json'), text)
    }
    const all = async () => {
      const ran = [
        await run('status'),
        await run('doctor'),
        await run('tunnels', 'list'),
        await run('tunnels', 'set-policy', 'cam', '--default'),
      ]
      return ran.map(({ stdout }) => /invite (--name \S+).*?(?= For the)/.exec(stdout)?.slice(0, 2))
    }
    const unnamed =
      /^invite --name NAME on the gateway .* NAME is the name of this device\. If the device has joined before, add --replace\.$/
    const isUnnamed = [expect.stringMatching(unnamed), '--name NAME']
    expect(await all()).toEqual(Array(4).fill(isUnnamed))
    record('cam-7')
    const named =
      'invite --name cam-7 --replace on the gateway and device-agent join on this device. The new invitation replaces all rules: repeat the --domain and each --allow of the earlier one.'
    const isNamed = [named, '--name cam-7']
    expect(await all()).toEqual(Array(4).fill(isNamed))
    // The text is pasted into a shell.
    record('x;reboot')
    expect(await all()).toEqual(Array(4).fill(isUnnamed))
  })

  it('says in one sentence how the device is, and ends with 1 when it is not well', async () => {
    const { run, json } = await startAgent()
    await run('tunnels', 'add', 'cam.site.test', '8001')
    await eventually(async () => {
      expect((await json('status')).status.link.state).toBe('waiting')
    })
    const { code, stdout } = await run('status')
    expect(code).toBe(1)
    expect(stdout).toMatch(/^● The tunnel does not work\. \S.*\.\n {2}- \S/)
    expect(stdout).toMatch(/^https:\/\/cam\.site\.test +offline +\d/m)
    expect(stdout).not.toContain('\x1b')
    const { status, tunnels } = await json('status')
    expect(status.healthy).toBe(false)
    expect(tunnels).toHaveLength(1)
  })

  it('adds a tunnel to a port alone, and the gateway chooses its name', async () => {
    const { run, json } = await startAgent()
    const waiting = await json('tunnels', 'add', '8080')
    expect(waiting).toMatchObject({ protocol: 'http', domain: '', forwards_to: 'localhost:8080' })
    // Not another tunnel to the same service.
    await run('tunnels', 'add', 'cam.site.test', '8080')
    const [second, third] = [
      await json('tunnels', 'add', '8080'),
      await json('tunnels', 'add', '8080'),
    ]
    expect([second.domain, third.domain]).toEqual(['', ''])
    expect(new Set([waiting.id, second.id, third.id]).size).toBe(3)
    for (const { id } of [second, third]) await run('tunnels', 'remove', id)
    const table = await run('tunnels', 'list')
    expect(table.stdout).toMatch(/^name pending +offline .* localhost:8080$/m)
    const policy = join(temporaryFolder(), 'policy.json')
    writeFileSync(policy, '{}')
    const early = await run('tunnels', 'set-policy', waiting.id, policy)
    expect([early.code, early.stderr]).toEqual([1, expect.stringContaining('has no name yet')])
    const removed = await run('tunnels', 'remove', waiting.id)
    expect(removed.stdout).toBe(`Removed ${waiting.id}.\n`)
    const wrong = await run('tunnels', 'add', 'cam.site.test')
    expect(wrong.code).toBe(2)
    expect(wrong.stderr).toContain('not a service. Add the port: tunnels add cam.site.test PORT')
    const folder = temporaryFolder()
    const site = await Site.start(folder)
    await isLinked(site)
    const env = { AGENT_DATA_DIR: join(folder, 'agent') }
    const added = await runProgram({ args: ['tunnels', 'add', '9'], cwd: folder, env })
    expect(added.stdout).toMatch(
      /^https:\/\/[a-z]+-[a-z]+-[a-z2-9]{7}\.site\.localhost:\d+: service down\. Start the service on localhost:9, or/,
    )
  })

  it('adds a tcp tunnel without an address, which the gateway chooses', async () => {
    const { json } = await startAgent()
    const waiting = await json('tunnels', 'add', '--protocol', 'tcp', '22')
    expect(waiting).toMatchObject({ protocol: 'tcp', domain: '', forwards_to: 'localhost:22' })
    const folder = temporaryFolder()
    const { host, first, last } = somePorts()
    const site = await Site.start(folder, { GATEWAY_TCP_LISTEN: `${host}:${first}-${last}` })
    await isLinked(site)
    const env = { AGENT_DATA_DIR: join(folder, 'agent') }
    const args = ['tunnels', 'add', '--protocol', 'tcp', '22', '--json']
    const added = JSON.parse((await runProgram({ args, cwd: folder, env })).stdout)
    expect(added).toMatchObject({
      protocol: 'tcp',
      domain: expect.stringMatching(/^127\.0\.0\.1:\d+$/),
    })
  })

  it('says what is wrong with a policy, and keeps what was', async () => {
    const { folder, run, json } = await startAgent()
    writeFileSync(join(folder, 'typo.yaml'), DENY.replace('deny', 'denyx'))
    const before = await json('tunnels', 'add', 'cam.site.test', '8001')
    const { code, stdout, stderr } = await run('tunnels', 'set-policy', 'cam', 'typo.yaml')
    expect([code, stdout]).toEqual([1, ''])
    expect(stderr).toMatch(
      /^device-agent: 1 mistake in typo\.yaml:\ntypo\.yaml:\d+:\d+: Unknown action denyx.*\(ERR_NGROK_2201\)\n$/,
    )
    expect((await json('tunnels', 'show', 'cam')).policy).toBe(before.policy)
    expect((await run('tunnels', 'set-policy', 'cam')).stderr).toContain(
      'Give either a file or --default',
    )
    expect((await run('tunnels', 'set-policy', 'cam', 'none.yaml')).stderr).toContain(
      'Cannot read the policy none.yaml: there is no such file.',
    )
    expect((await run('tunnels', 'show', 'none')).stderr).toBe(
      'device-agent: No tunnel matches none. (tunnel-not-found)\n' +
        '  → To see all tunnels, run device-agent tunnels list.\n',
    )
    expect((await run('tunnels', 'show', 'cam')).stdout).toMatch(
      /^upstream_settings +timeout 60, health tcp, /m,
    )
    expect((await run('tunnels', 'add', 'cam.site.test', '8001')).stderr).toContain('domain-taken')
  })

  it('says that no agent runs, whether or not one did', async () => {
    const { run, program } = await startAgent()
    await program.end('SIGKILL')
    expect((await run('status')).stderr).toContain('The agent is not running (stale socket).')
    const nowhere = await runProgram({ args: ['status'], cwd: temporaryFolder(), env: SERVICE })
    expect([nowhere.code, nowhere.stderr]).toEqual([
      1,
      expect.stringContaining('No agent is running: there is no socket at '),
    ])
  })

  it.runIf(canMount())(
    'tells of a read-only disk, and is answered once it is writable',
    async () => {
      const { folder: data, remount } = mountSmallDisk('16m')
      const env = { ...SERVICE, AGENT_DATA_DIR: data }
      const start = async () => {
        const program = new Program({ args: ['run', '--json'], cwd: data, env })
        onTestFinished(async () => void (await program.end()))
        await program.ready()
        return program
      }
      const run = () => runProgram({ args: ['status'], cwd: data, env })
      const first = await start()
      await first.end()
      remount('ro')
      const second = await start()
      expect((await run()).stderr).toContain('file system is read-only')
      await second.end()
      remount('rw')
      // Its socket stays there, and cannot be replaced.
      await (await start()).end('SIGKILL')
      remount('ro')
      await start()
      expect((await run()).stderr).toContain('file system is read-only')

      remount('rw')
      await eventually(async () => expect((await run()).stdout).toContain('No tunnels.'))
      const other = await runProgram({ args: ['run'], cwd: data, env })
      expect([other.code, other.stderr]).toEqual([
        1,
        expect.stringContaining('Another agent is using'),
      ])
    },
  )

  it('watches an agent that goes and comes, a line for each change where nobody looks', async () => {
    const { folder, program } = await startAgent()
    const watch = new Program({ args: ['status', '--watch'], cwd: folder, env: SERVICE })
    onTestFinished(async () => void (await watch.end()))
    let seen = ''
    watch.child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      seen += text
    })
    await eventually(() => expect(seen).toContain('No tunnels.'))
    await program.end()
    await eventually(() =>
      expect(seen).toMatch(/is not running|No agent is running|has just stopped/),
    )
    const { code } = await watch.end()
    expect(code).toBe(0)
  })
})

describe('the local socket', () => {
  const ask = (socketPath: string, host = 'localhost') =>
    new Promise<number | undefined>((resolve, reject) => {
      request({ socketPath, path: '/audit', headers: { host } }, (response) => {
        response.resume().on('end', () => resolve(response.statusCode))
      })
        .on('error', reject)
        .end()
    })

  it('is for the user of the agent alone, and for its group in a runtime folder', async () => {
    const { folder } = await startAgent()
    expect(statSync(join(folder, 'data/local.sock')).mode & 0o777).toBe(0o600)
    const runtime = join(temporaryFolder(), 'run')
    mkdirSync(runtime)
    await startAgent({ RUNTIME_DIRECTORY: runtime })
    expect(statSync(join(runtime, 'agent.sock')).mode & 0o777).toBe(0o660)
  })

  it('serves no other host name, and the audit trail names it', async () => {
    const { folder, run, program } = await startAgent()
    const path = join(folder, 'data/local.sock')
    expect(await ask(path, 'evil.test')).toBe(421)
    expect(await ask(path)).toBe(200)
    await run('tunnels', 'add', 'cam.site.test', '8001')
    await eventually(() => expect(program.stderr).toContain('"name":"local socket"'))
  })
})

describe('what an agent says', () => {
  it('moves no cursor, whoever sits at the socket', async () => {
    const folder = temporaryFolder()
    mkdirSync(join(folder, 'data'))
    const evil = 'a\u009b2J\u001b[2Jb'
    const server = createServer((_, response) => {
      const problem = { detail: evil, code: 'evil', errors: [{ pointer: evil, detail: evil }] }
      response.writeHead(404, { 'content-type': 'application/json' }).end(JSON.stringify(problem))
    })
    server.listen(join(folder, 'data/local.sock'))
    onTestFinished(() => void server.close())
    const { stderr } = await runProgram({
      args: ['tunnels', 'show', 'x'],
      cwd: folder,
      env: SERVICE,
    })
    expect(stderr).toBe('device-agent: a 2J [2Jb (evil)\n  at a 2J [2Jb\n')
  })
})
