import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import process from 'node:process'
import { PassThrough } from 'node:stream'
import { onTestFinished, vi } from 'vitest'
import { createProgram } from '../../src/cli/program.ts'
import { MAIN, Program } from './program.ts'
import { temporaryFolder } from './temporary-folder.ts'

/** `systemctl` of the installed agent: what systemd does with its unit, for the commands that we use. */
const SYSTEMCTL = `#!${process.execPath}
const { spawn } = require('node:child_process')
const fs = require('node:fs')
const { ROOT, MAIN, LOAD_STATE, HAS_AGENT, HANGS_UP, CREDENTIALS } = JSON.parse(fs.readFileSync(__dirname + '/system.json', 'utf8'))
const words = process.argv.slice(2)
const line = words.join(' ') + '\\n'
const isFirst = !fs.existsSync(ROOT + '/calls') || !fs.readFileSync(ROOT + '/calls', 'utf8').includes(line)
fs.appendFileSync(ROOT + '/calls', line)
if (HANGS_UP && isFirst && words[0] !== 'show') {
  process.kill(process.ppid, 'SIGHUP')
  process.kill(process.pid, 'SIGHUP')
}
const pidFile = ROOT + '/pid'
function stop() {
  if (!fs.existsSync(pidFile)) return
  const pid = Number(fs.readFileSync(pidFile, 'utf8'))
  fs.rmSync(pidFile)
  try { process.kill(pid, 'SIGTERM') } catch { return }
  for (;;) {
    try { process.kill(pid, 0) } catch { return }
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20)
  }
}
function start() {
  const env = {
    PATH: process.env.PATH,
    AGENT_LISTEN: '127.0.0.1:0',
    STATE_DIRECTORY: ROOT + '/var/lib/device-agent',
    RUNTIME_DIRECTORY: ROOT + '/run/device-agent',
    CREDENTIALS_DIRECTORY: ROOT + CREDENTIALS,
  }
  const lines = fs.readFileSync(ROOT + '/etc/device-agent/agent.env', 'utf8').split('\\n')
  for (const line of lines) {
    const [, name, value] = /^(\\w+)="?(.*?)"?$/.exec(line) ?? []
    if (name) env[name] = value
  }
  if (env.SVC_CA_CERT) env.SVC_CA_CERT = ROOT + env.SVC_CA_CERT
  const log = fs.openSync(ROOT + '/log', 'a')
  const out = fs.openSync(ROOT + '/ready', 'w')
  const child = spawn(process.execPath, [MAIN, 'run', '--json'], {
    env, cwd: ROOT, detached: true, stdio: ['ignore', out, log],
  })
  fs.writeFileSync(pidFile, String(child.pid))
  child.unref()
  while (fs.statSync(ROOT + '/ready').size === 0) {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20)
    try { process.kill(child.pid, 0) } catch { process.exit(1) }
  }
}
if (words[0] === 'show') console.log('LoadState=' + LOAD_STATE)
if (words[0] === 'restart' && HAS_AGENT) { stop(); start() }
if (words[0] === 'disable' && words.includes('--now')) stop()
`

export interface CommandOutcome {
  readonly stdout: string
  readonly stderr: string
  /** Message of the error that the command has thrown. */
  readonly error: string | undefined
  readonly exitCode: typeof process.exitCode
}

/** A system with the installed agent, below a folder. The agent ends with the running test. */
export interface InstalledSystem {
  readonly root: string
  /** Commands that were given to systemctl. */
  readonly calls: () => string[]
  readonly read: (path: string) => string | undefined
  readonly run: (...args: string[]) => Promise<CommandOutcome>
  /** The same in a process of its own. */
  readonly start: (...args: string[]) => Program
}

const COMMAND = join(import.meta.dirname, 'installed-command.ts')

/**
 * `hasAgent`: its service runs the built program. `hangsUp`: each change of the service closes the terminal of the
 * command. `passesCredentials`: systemd gives the service its credentials.
 */
export function installedSystem({
  loadState = 'loaded',
  hasAgent = false,
  hangsUp = false,
  passesCredentials = true,
} = {}): InstalledSystem {
  const root = temporaryFolder()
  const bin = join(root, 'bin')
  for (const folder of [
    'bin',
    'run/systemd/system',
    'run/device-agent',
    'etc/systemd/system',
    'etc/credstore',
    'var/lib/device-agent',
  ]) {
    mkdirSync(join(root, folder), { recursive: true })
  }
  writeFileSync(join(root, 'etc/systemd/system/device-agent.service'), '')
  writeFileSync(join(bin, 'systemctl'), SYSTEMCTL)
  chmodSync(join(bin, 'systemctl'), 0o755)
  const system = {
    ...{ ROOT: root, MAIN, LOAD_STATE: loadState, HAS_AGENT: hasAgent, HANGS_UP: hangsUp },
    CREDENTIALS: passesCredentials ? '/etc/credstore' : '/run/none',
  }
  writeFileSync(join(bin, 'system.json'), JSON.stringify(system))
  const read = (path: string) => {
    return existsSync(join(root, path)) ? readFileSync(join(root, path), 'utf8') : undefined
  }
  onTestFinished(() => {
    const pid = read('pid')
    if (pid !== undefined) process.kill(Number(pid), 'SIGKILL')
  })
  return {
    root,
    read,
    calls: () => (read('calls') ?? '').split('\n').filter((line) => line !== ''),
    run: (...args) => runIn(root, bin, args),
    start: (...args) => {
      const command = [process.execPath, '--import', 'tsx', COMMAND, root] as const
      const PATH = `${bin}${delimiter}${process.env.PATH}`
      return new Program({ command: [...command], args, env: { PATH } })
    },
  }
}

/** Runs a command of this program as on that system. */
async function runIn(root: string, bin: string, args: readonly string[]): Promise<CommandOutcome> {
  vi.stubEnv('PATH', `${bin}${delimiter}${process.env.PATH}`)
  const umask = process.umask()
  const streams = { stdout: new PassThrough(), stderr: new PassThrough() }
  const stop = new AbortController().signal
  const program = createProgram({ environment: {}, root, ...streams, stop })
  const before = process.exitCode
  try {
    const error = await program.parseAsync([...args], { from: 'user' }).then(
      () => undefined,
      (thrown: Error) => thrown.message,
    )
    return {
      stdout: String(streams.stdout.read() ?? ''),
      stderr: String(streams.stderr.read() ?? ''),
      error,
      exitCode: process.exitCode,
    }
  } finally {
    process.exitCode = before
    process.umask(umask)
    vi.unstubAllEnvs()
  }
}
