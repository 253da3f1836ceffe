import { spawn } from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { gunzipSync } from 'node:zlib'
import { expect, it, onTestFinished } from 'vitest'
import { joinFromFile } from '../../src/cli/join/join-file.ts'
import { parseConfig } from '../../src/config.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { eventually } from '../helpers/eventually.ts'
import { joinPeer } from '../helpers/join-peer.ts'
import { MAIN, Program, runProgram } from '../helpers/program.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

/** Runs `join` with a text on standard input. */
async function pipe(folder: string, input: string, ...args: string[]) {
  const child = spawn(process.execPath, [MAIN, 'join', ...args], {
    cwd: folder,
    env: { PATH: process.env.PATH ?? '' },
  })
  child.stdin.end(input)
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr)])
  return { stdout, stderr }
}

/** A container: a volume, a mounted join string, and an agent that may be started again. */
function container(joinString: string) {
  const folder = temporaryFolder()
  const volume = join(folder, 'volume')
  mkdirSync(volume)
  const file = join(folder, 'join')
  writeFileSync(file, `${joinString}\n`)
  const env = {
    SVC_JOIN_FILE: file,
    AGENT_DATA_DIR: volume,
    AGENT_LISTEN: '127.0.0.1:0',
    CREDENTIALS_DIRECTORY: '',
  }
  const start = () => {
    const agent = new Program({ args: ['run', '--json'], cwd: folder, env })
    onTestFinished(() => agent.end('SIGKILL').then(() => undefined))
    return agent
  }
  const run = (...args: string[]) => runProgram({ args, cwd: folder, env })
  return { folder, volume, file, start, run }
}

it('a container joins once, and keeps what it got on its volume', async () => {
  const peer = await joinPeer()
  const string = peer.invite()
  const { folder, volume, file, start, run } = container(string)
  const first = start()
  await first.ready()
  expect(first.stderr).toContain('joined the gateway of SVC_JOIN_FILE')
  await first.end()
  const settings = join(volume, 'joined.env')
  expect(readFileSync(settings, 'utf8')).toContain('SVC_AUTHTOKEN=id_authtoken-of-cam-7\n')
  expect(statSync(settings).mode & 0o777).toBe(0o600)
  const written = readFileSync(settings)

  const second = start()
  await second.ready()
  expect(second.stderr).not.toContain('joined the gateway')
  // The settings of the join are those of every command.
  const doctor = await run('doctor')
  expect(doctor.stdout).toContain(peer.address)
  // A careless log, and everything that this device keeps of the join.
  const careless = join(folder, 'careless.log')
  writeFileSync(careless, `${JSON.stringify({ level: 'info', msg: `joins with ${string}` })}\n`)
  await run('support-bundle', 'bundle.tar.gz', '--log-file', careless)
  const bundle = gunzipSync(readFileSync(join(folder, 'bundle.tar.gz'))).toString()
  expect(bundle).toContain('joins with [secret]')
  await second.end()
  rmSync(file)
  const third = start()
  await third.ready()
  expect(third.stderr).not.toContain('SVC_JOIN_FILE')
  await third.end()
  const next = peer.invite()
  writeFileSync(file, next)
  const fourth = start()
  await fourth.ready()
  expect(fourth.stderr).toContain('SVC_JOIN_FILE has a new join string, and is not used')
  await fourth.end()
  expect(peer.claims).toHaveLength(1)
  expect(readFileSync(settings)).toEqual(written)
  expect(second.stderr).not.toContain('new join string')
  const log = [first, second, third, fourth].map(({ stderr }) => stderr).join('\n')
  for (const secret of [
    string.slice(8, 40),
    next.slice(8, 40),
    'authtoken-of-cam-7',
    peer.claims[0]?.claim ?? '?',
  ]) {
    expect(`${log}${bundle}${doctor.stdout}`).not.toContain(secret)
  }

  const left = await run('leave', '--yes')
  expect(left.stdout).toContain(`This device has left ${peer.address}.`)
  expect(existsSync(settings)).toBe(false)
  const fifth = start()
  await fifth.ready()
  expect(peer.claims).toHaveLength(2)
  await fifth.end()
  await run('leave', '--yes')
  const purged = await run('leave', '--yes', '--purge')
  expect(purged.stdout).toContain('All data of the agent was deleted.')
  // The volume is mounted, so its folder stays.
  expect(readdirSync(volume)).toEqual([])
})

it('a container waits for its gateway, and ends when the invitation cannot be used', async () => {
  let isUsed = false
  const peer = await joinPeer({
    answer: () =>
      isUsed ? { v: 1, error: 'used', message: 'The invitation was used by cam-9.' } : 'closed',
  })
  const { volume, start } = container(peer.invite())
  const agent = start()
  await eventually(() => {
    expect(agent.stderr).toContain('cannot join the gateway of SVC_JOIN_FILE yet, trying again')
  })
  isUsed = true
  const { code, stderr } = await agent.ended
  expect([code, peer.claims[0]?.claim]).toEqual([1, peer.claims.at(-1)?.claim])
  expect(stderr).toContain('The invitation was used by cam-9.')
  expect(existsSync(join(volume, 'joined.env'))).toBe(false)
})

it.each([
  ['is missing', undefined, 'Cannot read SVC_JOIN_FILE'],
  ['has another text', 'hello\n', 'This is not a join string.'],
])('a container says that its join file %s', async (_name, content, reason) => {
  const { file, run } = container(content ?? '')
  if (content === undefined) rmSync(file)
  const { code, stderr } = await run('run')
  expect([code, stderr]).toEqual([1, expect.stringContaining(reason)])
})

it('a container uses what another one on its volume has joined meanwhile', async () => {
  const peer = await joinPeer()
  const { file, volume } = container(peer.invite())
  const environment = { SVC_JOIN_FILE: file, AGENT_DATA_DIR: volume }
  // Both have read their settings before one of them joins.
  const { agent: config } = parseConfig(environment)
  const { log } = captureLog()
  const join = () => joinFromFile({ config, environment, log, stop: AbortSignal.timeout(60_000) })
  const [first, second] = [await join(), await join()]
  expect(first.SVC_AUTHTOKEN).toBe('id_authtoken-of-cam-7')
  expect(second).toEqual(first)
  expect(peer.claims).toHaveLength(1)
})

it('an agent with an authtoken of its own does not use the join file', async () => {
  const peer = await joinPeer()
  const { folder, file, volume } = container(peer.invite())
  const agent = new Program({
    args: ['run', '--json'],
    cwd: folder,
    env: { SVC_JOIN_FILE: file, AGENT_DATA_DIR: volume, SVC_AUTHTOKEN: 'own', LOG_LEVEL: 'warn' },
  })
  onTestFinished(() => agent.end('SIGKILL').then(() => undefined))
  await agent.ready()
  expect(peer.claims).toEqual([])
})

it('without a service, join writes .env from standard input, and leave takes it back', async () => {
  const peer = await joinPeer()
  const folder = temporaryFolder()
  writeFileSync(join(folder, '.env'), 'AGENT_MAX_TUNNELS=7\n')
  const string = peer.invite()
  const broken = `${string.slice(0, 50)}\r\n  ${string.slice(50)}\n`
  const { stdout, stderr } = await pipe(folder, broken, '-', '--name', 'cam-7')
  expect(stderr).toBe('')
  expect(stdout).toBe(
    'This device has joined as cam-7: https://agent.cam-7.site.test\nIts settings are in .env. Start or restart the agent in this directory: device-agent run\n',
  )
  const env = join(folder, '.env')
  expect(readFileSync(env, 'utf8')).toBe(
    `AGENT_MAX_TUNNELS=7\nSVC_SERVER_ADDR=${peer.address}\nSVC_CA_CERT=data/gateway-ca.pem\nSVC_AUTHTOKEN=id_authtoken-of-cam-7\nAGENT_DOMAIN=agent.cam-7.site.test\n`,
  )
  expect(statSync(env).mode & 0o777).toBe(0o600)
  expect(peer.claims[0]?.hostname).toBe('cam-7')
  const json = await pipe(folder, peer.invite(), '--json')
  expect(JSON.parse(json.stdout)).toEqual({
    ...{ name: 'cam-7', url: 'https://agent.cam-7.site.test', state: 'written', problem: null },
  })
  const agent = new Program({ args: ['run', '--json'], cwd: folder })
  onTestFinished(() => agent.end('SIGKILL').then(() => undefined))
  await agent.ready()
  const refused = await runProgram({ args: ['leave', '--yes'], cwd: folder })
  expect(refused.stderr).toContain('is running. Stop it first.')
  await agent.end()
  const left = await runProgram({ args: ['leave', '--yes', '--json'], cwd: folder })
  expect(JSON.parse(left.stdout)).toEqual({ left: peer.address, name: 'cam-7', purged: false })
  expect(readFileSync(env, 'utf8')).toBe('AGENT_MAX_TUNNELS=7\n')
  expect(existsSync(join(folder, 'data/gateway-ca.pem'))).toBe(false)
  const nothing = await pipe(folder, '')
  expect(nothing.stderr).toContain('Standard input contains no join string.')
})
