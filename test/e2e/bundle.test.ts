import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { eventually } from '../helpers/eventually.ts'
import { FREE_PORTS, MAIN, Program, runProgram } from '../helpers/program.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const DIST = dirname(MAIN)

/** The file and those that it loads by a statement, and they. */
function loadedBy(file: string, loaded = new Set<string>()): Set<string> {
  if (loaded.has(file)) return loaded
  loaded.add(file)
  const text = readFileSync(join(DIST, file), 'utf8')
  for (const [, name = ''] of text.matchAll(/(?:\bfrom|\bimport)\s*["']\.\/([^"']+)["']/g)) {
    loadedBy(name, loaded)
  }
  return loaded
}

/** Asked by a signal, it says which of these modules of Node are loaded. */
const PROBE = `
process.once('SIGUSR2', () => {
  const left = ['undici', 'internal/deps/undici/undici', 'http2', 'zlib', 'readline', 'http']
  const loaded = left.filter((name) => process.moduleLoadList.includes('NativeModule ' + name))
  process.stderr.write('loaded: ' + loaded + '.\\n')
})
`

/** Texts of commands that are no services. */
const OTHER_COMMANDS = ['prepare this server: settings', 'print shell completion code']
/** The same, and texts of libraries that have a stand-in in the bundle. */
const UNUSED_BY_SERVICES = [
  ...OTHER_COMMANDS,
  'process.env.DEBUG',
  'NO_DEPRECATION',
  'the worker has exited',
]

const lazy = (name: string) => readdirSync(DIST).find((it) => it.startsWith(`${name}-`)) ?? name

describe('the bundle', () => {
  it('has few files that run loads before it listens, and none of them of a gateway', () => {
    const loaded = loadedBy(lazy('supervised-daemon'), loadedBy('main.js'))
    expect(loaded.size).toBeLessThanOrEqual(12)
    expect([...loaded]).toContain('joined-agent.js')
    expect([...loaded]).not.toContain('joined-gateway.js')
  })

  it.each([
    ['run', ['supervised-daemon']],
    ['gateway', ['supervised-gateway']],
  ])('has nothing for %s to load of what the service does not use', (_command, parts) => {
    const loaded = parts.reduce((all, part) => loadedBy(lazy(part), all), loadedBy('main.js'))
    const found = (files: ReadonlySet<string>, texts: readonly string[]) => {
      const text = [...files].map((file) => readFileSync(join(DIST, file), 'utf8')).join('\n')
      // The bundler breaks long lines, also within texts.
      return texts.filter((it) => text.replaceAll('\\\n', '').includes(it))
    }
    expect(found(loaded, UNUSED_BY_SERVICES)).toEqual([])
    expect(found(loadedBy(lazy('program')), OTHER_COMMANDS)).toEqual(OTHER_COMMANDS)
  })

  it('spares commands of a technician the agent', () => {
    for (const command of ['local-agent', 'status-view', 'tunnel-view', 'install']) {
      expect([...loadedBy(lazy(command))], command).not.toContain('joined-agent.js')
      expect([...loadedBy(lazy(command))], command).not.toContain('joined-agent-gateway.js')
    }
  })

  it('asks Node for what is used of its modules, and for one require in a file', () => {
    for (const file of readdirSync(DIST).filter((it) => it.endsWith('.js'))) {
      const text = readFileSync(join(DIST, file), 'utf8')
      expect(text, file).not.toMatch(/(?:\bfrom|\bimport)\s*["']node:/)
      const requires = text.match(/\bcreateRequire\(import\.meta\.url\)/g)?.length ?? 0
      expect(requires, file).toBeLessThanOrEqual(1)
    }
  })

  it('loads none of the modules of Node that an idle agent has no use for', async () => {
    const folder = temporaryFolder()
    const probe = join(folder, 'probe.cjs')
    writeFileSync(probe, PROBE)
    const env = { ...FREE_PORTS, SVC_SERVER_ADDR: '127.0.0.1:1', NODE_OPTIONS: `-r ${probe}` }
    const program = new Program({ args: ['run', '--json'], cwd: folder, env })
    onTestFinished(() => program.end('SIGKILL').then(() => {}))
    await program.ready()
    process.kill(program.pid ?? 0, 'SIGUSR2')
    await eventually(() => expect(program.stderr).toContain('loaded: http.\n'))
  })

  it.each(['main.js', 'policy-process.js', 'rewrite-thread.js', 'yaml-thread.js'])(
    '%s says in one sentence that a Node is too old, as that of Debian 12',
    async (file) => {
      const folder = temporaryFolder()
      const older = join(folder, 'older.cjs')
      writeFileSync(older, 'delete process.getBuiltinModule')
      const { code, stdout, stderr } = await runProgram({
        command: [process.execPath, '-r', older, join(DIST, file)],
        args: ['--version'],
        cwd: folder,
      })
      expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
      expect(stderr).toBe(
        `device-agent: Node ${process.versions.node} is too old. Use version 20.19 or newer. The packages include Node.js.\n`,
      )
    },
  )

  it('has every file that one of its files names', () => {
    const files = readdirSync(DIST).filter((it) => it.endsWith('.js'))
    const named = files.flatMap((file) =>
      Array.from(
        readFileSync(join(DIST, file), 'utf8').matchAll(/["']\.\/([\w-]+\.js)["']/g),
        ([, name = '']) => name,
      ),
    )
    expect(named.filter((name) => !files.includes(name))).toEqual([])
  })
})
