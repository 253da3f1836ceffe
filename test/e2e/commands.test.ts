import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  cpSync,
  fstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { warnOfEndedNode } from '../../src/cli/serve.ts'
import { settingRows } from '../../src/cli/usage/settings-table.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { startEchoUpstream } from '../helpers/echo-upstream.ts'
import { eventually } from '../helpers/eventually.ts'
import { FREE_PORTS, MAIN, Program, runProgram } from '../helpers/program.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

describe('the program', () => {
  it.each([['--help'], ['run', '--help'], ['up', '--help'], ['gateway', '--help']])(
    'explains itself with %s %s',
    async (...args) => {
      const { code, stdout, stderr } = await runProgram({ args: args.filter(Boolean) })
      expect([code, stderr]).toEqual([0, ''])
      expect(stdout).toMatch(/^Usage: device-agent/)
    },
  )

  it.each(['--version', '-v'])('tells its version with %s', async (flag) => {
    const { code, stdout } = await runProgram({ args: [flag] })
    expect([code, stdout]).toEqual([0, expect.stringMatching(/^\d+\.\d+\.\d+\n$/)])
  })

  it('tells with version what a report of a fault should name', async () => {
    const words = await runProgram({ args: ['version'] })
    expect([words.code, words.stdout]).toEqual([
      0,
      expect.stringMatching(/^device-agent \d+\.\d+\.\d+, Node \d+\.\d+\.\d+, linux \w+\n$/),
    ])
    const { stdout } = await runProgram({ args: ['version', '--json'] })
    expect(JSON.parse(stdout)).toMatchObject({ node: process.versions.node, arch: process.arch })
  })

  it('helps with a command as with --help behind it', async () => {
    const { code, stdout } = await runProgram({ args: ['help', 'tunnels', 'add'] })
    expect(code).toBe(0)
    expect(stdout).toBe((await runProgram({ args: ['tunnels', 'add', '--help'] })).stdout)
    expect(stdout).toMatch(/^Usage: device-agent tunnels add /)
    const all = await runProgram({ args: ['help'] })
    expect(all.stdout).toBe((await runProgram({ args: ['--help'] })).stdout)
    // What a technician looks for comes first, and all of it is seen at once.
    expect(all.stdout).toMatch(/\nManage a device:\n {2}status /)
    expect(all.stdout.split('\n').length).toBeLessThan(75)
  })

  it('prints a host name for SVC_SERVER_ADDR when the gateway listens on an IPv6 address', async () => {
    const gateway = new Program({
      args: ['gateway'],
      env: {
        GATEWAY_DATA_DIR: join(temporaryFolder(), 'gateway'),
        GATEWAY_AGENT_LISTEN: '[::1]:0',
      },
    })
    onTestFinished(async () => void (await gateway.end()))
    let printed = ''
    gateway.child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      printed += text
    })
    await eventually(() => {
      expect(printed).toMatch(/ devices {4}connect to \[::1\]:\d+$/m)
      expect(printed).toMatch(/ SVC_SERVER_ADDR=<host name of this gateway>:\d+$/m)
    })
  })

  it('lists the settings with their defaults', async () => {
    const { code, stdout } = await runProgram({ args: ['help', 'settings'] })
    expect(code).toBe(0)
    for (const { name, fallback, meaning } of settingRows()) {
      expect(stdout).toContain(` ${name} `)
      expect(stdout).toContain(fallback === '' ? meaning : `${meaning} [${fallback}]`)
    }
  })

  it.each([
    [['fly']],
    [['help', 'tunnels', 'fly']],
    [['completion', 'tcsh']],
    [['run', '--nope']],
    [['up', 'extra']],
    [['service', 'install', '--gateway', '--token-stdin', '--dry-run']],
  ])('calls %j wrong usage', async (args) => {
    const { code, stdout, stderr } = await runProgram({ args })
    expect([code, stdout]).toEqual([2, ''])
    expect(stderr).toMatch(/^error: /)
  })

  it('shows its help when called with nothing, as wrong usage', async () => {
    const { code, stderr } = await runProgram({ args: [] })
    expect([code, stderr]).toEqual([2, expect.stringContaining('Usage: device-agent')])
  })

  it('names an unknown setting and the one that was meant', async () => {
    const { code, stderr } = await runProgram({ args: ['run'], env: { AGENT_DOMAN: 'x' } })
    expect([code, stderr]).toEqual([
      1,
      'device-agent: Unknown setting AGENT_DOMAN. Did you mean AGENT_DOMAIN?\n',
    ])
  })
})

describe('a default policy that cannot be used', () => {
  it.each([
    ['{\n  "on_http_request": [],\n}\n', /policy\.json.*line 3.*column 1/],
    ['[]', /policy\.json.*object/],
    ['"text"', /policy\.json.*object/],
    ['', /policy\.json.*line 1.*column 1/],
    [undefined, /The default policy .*policy\.json does not exist/],
  ])('stops the start with one sentence: %j', async (content, sentence) => {
    const folder = temporaryFolder()
    const path = join(folder, 'policy.json')
    if (content !== undefined) writeFileSync(path, content)
    const { code, stdout, stderr } = await runProgram({
      args: ['run'],
      cwd: folder,
      env: { AGENT_DEFAULT_POLICY: path },
    })
    const lines = stderr.split('\n').filter((line) => line.startsWith('device-agent: '))
    expect([code, stdout, lines.length]).toEqual([1, '', 1])
    expect(lines[0]).toMatch(sentence)
  })
})

describe('a data folder that cannot be used', () => {
  it('is named in one sentence', async () => {
    const folder = temporaryFolder()
    const path = join(folder, 'occupied')
    writeFileSync(path, '')
    chmodSync(path, 0o400)
    const { code, stderr } = await runProgram({
      args: ['run'],
      cwd: folder,
      env: { AGENT_DATA_DIR: path, LOG_LEVEL: 'silent' },
    })
    expect([code, stderr]).toEqual([1, expect.stringMatching(/^device-agent: .*occupied.*\n$/)])
  })

  // The kernel has no folder to give there, and says of the parent that it is there.
  it.each(['run', 'up', 'gateway'])('ends %s where none can be made', async (command) => {
    const [dataDir, gatewayDir] = ['/proc/device-agent', '/proc/device-gateway']
    const { code, stderr } = await runProgram({
      args: [command],
      cwd: temporaryFolder(),
      env: { AGENT_DATA_DIR: dataDir, GATEWAY_DATA_DIR: gatewayDir, LOG_LEVEL: 'silent' },
    })
    const sentence =
      /^device-agent: Cannot create or open the data directory \/proc\/device-\w+: .+\n$/
    expect([code, stderr]).toEqual([1, expect.stringMatching(sentence)])
  })

  it('ends up where only that of the agent cannot be made', async () => {
    const { code, stderr } = await runProgram({
      args: ['up'],
      cwd: temporaryFolder(),
      env: { AGENT_DATA_DIR: '/proc/x', GATEWAY_DATA_DIR: temporaryFolder(), LOG_LEVEL: 'silent' },
    })
    expect([code, stderr]).toEqual([
      1,
      expect.stringContaining('Cannot create or open the data directory /proc/x'),
    ])
  })
})

describe('a Node that gets no security fixes any more', () => {
  it.each(['run', 'up', 'gateway'])('is warned about by %s, once', async (command) => {
    const { log, lines } = captureLog()
    const { node } = process.versions
    warnOfEndedNode({ version: node, now: Date.now(), log })
    const folder = temporaryFolder()
    const path = join(folder, 'occupied')
    writeFileSync(path, '')
    const env = { AGENT_DATA_DIR: path, GATEWAY_DATA_DIR: path, LOG_LEVEL: 'warn' }
    const { stderr } = await runProgram({ args: [command], cwd: folder, env })
    const logged = stderr.split('\n').filter((line) => line.startsWith('{'))
    const warnings = logged.map((line) => JSON.parse(line)).filter((line) => line.node === node)
    expect(warnings.map(({ msg }) => msg)).toEqual(lines.map(({ msg }) => msg))
  })
})

describe('a start without the SQLite of this Node', () => {
  /** The built program beside all that is installed but SQLite. */
  function installWithoutSqlite(): string {
    const root = join(dirname(MAIN), '..')
    const folder = temporaryFolder()
    cpSync(dirname(MAIN), join(folder, 'dist'), {
      recursive: true,
      filter: (path) => !path.endsWith('.map'),
    })
    for (const file of ['package.json', 'default-policy.json']) {
      cpSync(join(root, file), join(folder, file))
    }
    mkdirSync(join(folder, 'node_modules'))
    for (const name of readdirSync(join(root, 'node_modules'))) {
      if (name.startsWith('better-sqlite3')) continue
      symlinkSync(join(root, 'node_modules', name), join(folder, 'node_modules', name))
    }
    return folder
  }

  it('is refused by what needs it, in one sentence', () => {
    const folder = installWithoutSqlite()
    for (const command of ['run', 'up', 'gateway']) {
      const { status, stdout, stderr } = spawnSync(
        process.execPath,
        ['dist/main.js', command, '--json'],
        { cwd: folder, env: { ...FREE_PORTS, LOG_LEVEL: 'silent' }, encoding: 'utf8' },
      )
      expect([status, stdout]).toEqual([1, ''])
      expect(stderr).toMatch(/^device-agent: Cannot load SQLite on Node\.js .*`npm run setup`\.\n$/)
    }
    const help = spawnSync(process.execPath, ['dist/main.js', '--help'], { cwd: folder })
    expect(help.status).toBe(0)
  })
})

describe('a settings file that cannot be read', () => {
  it('is named in one sentence', async () => {
    const folder = temporaryFolder()
    mkdirSync(join(folder, '.env'))
    const { code, stderr } = await runProgram({ args: ['run'], cwd: folder })
    const said = 'device-agent: Cannot read the file .env in the current directory: EISDIR.\n'
    expect([code, stderr]).toEqual([1, said])
  })
})

describe('a start that fails under systemd', () => {
  it('is an error of the journal', () => {
    const folder = temporaryFolder()
    const path = join(folder, 'stderr')
    const stderr = openSync(path, 'w')
    const { dev, ino } = fstatSync(stderr)
    const { status } = spawnSync(process.execPath, [MAIN, 'run'], {
      cwd: folder,
      env: { JOURNAL_STREAM: `${dev}:${ino}`, SVC_CA_CERT: '/nowhere/ca.pem' },
      stdio: ['ignore', 'ignore', stderr],
    })
    const said = readFileSync(path, 'utf8').split('\n')
    expect([status, said]).toEqual([
      1,
      expect.arrayContaining([
        expect.stringMatching(
          /^<3>device-agent: Cannot use SVC_CA_CERT .nowhere.ca\.pem: the file is missing\. /,
        ),
      ]),
    ])
  })
})

describe('an address that is taken', () => {
  it.each([
    ['AGENT_LISTEN', 'run', 'The agent API cannot listen'],
    ['GATEWAY_AGENT_LISTEN', 'gateway', 'Agents cannot connect'],
    ['GATEWAY_HTTP_LISTEN', 'gateway', 'Visitors cannot connect'],
    ['GATEWAY_API_LISTEN', 'gateway', 'The management API cannot listen'],
  ])(
    'is named when it is %s, and a first start leaves nothing',
    async (name, command, sentence) => {
      const taken = await startEchoUpstream()
      onTestFinished(() => taken.close())
      const cwd = temporaryFolder()
      const start = () =>
        runProgram({
          args: [command],
          cwd,
          env: { [name]: `127.0.0.1:${taken.port}`, LOG_LEVEL: 'silent' },
        })
      const said = `device-agent: ${sentence} on 127.0.0.1:${taken.port}: the address is already in use; set ${name} to another address.\n`
      const first = await start()
      expect([first.code, first.stdout, first.stderr]).toEqual([1, '', said])
      expect(readdirSync(cwd)).toEqual([])
      // With data, which stay.
      mkdirSync(join(cwd, 'data/gateway'), { recursive: true })
      writeFileSync(join(cwd, 'data/mine'), '')
      const again = await start()
      expect([again.code, again.stdout, again.stderr]).toEqual([1, '', said])
      expect(readdirSync(join(cwd, 'data'))).toEqual(expect.arrayContaining(['gateway', 'mine']))
    },
  )
})

// On an older Node, a collection gives no memory back, and the program asks for none.
if (Number.parseInt(process.versions.node, 10) >= 24) {
  it.each(['run', 'gateway'])('`%s` collects garbage when it is idle', async (command) => {
    const folder = temporaryFolder()
    const env = {
      ...{ SVC_SERVER_ADDR: '127.0.0.1:1', LOG_LEVEL: 'debug' },
      ...{ AGENT_DATA_DIR: folder, GATEWAY_DATA_DIR: folder },
    }
    const service = new Program({ args: [command, '--json'], cwd: folder, env })
    onTestFinished(() => service.end('SIGKILL').then(() => {}))
    await service.ready()
    await eventually(() => expect(service.stderr).toContain('garbage collected'))
  })
}
