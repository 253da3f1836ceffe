import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { basename, join, resolve } from 'node:path'
import process from 'node:process'
import { type BuildOptions, build, type Plugin } from 'esbuild'
import { builtinModules } from './builtin-modules.ts'

/**
 * Joins chunks that are always loaded together; `npm run build` calls it with its folder. esbuild
 * makes a chunk of each set of modules that the same entries need, and every lazy import is an entry:
 * `run` had 88 files to find, read and link before it listened.
 */
const FOLDER = resolve(process.argv[2] ?? 'dist')

/** Chunks are joined when the same ones of these need them. */
const NEEDED_BY: readonly (readonly [name: string, entries: readonly string[]])[] = [
  ['program', ['main']],
  ['agent', ['supervised-daemon']],
  ['gateway', ['supervised-gateway']],
  ['checks', ['policy-process', 'rewrite-thread', 'yaml-thread']],
  ['others', ['program']],
  // Quick ones, which must not load the agent for a few lines of it.
  ['command', ['local-agent', 'status-view', 'tunnel-view', 'agent-checks', 'install']],
]
/** Who begins with these needs all of what is joined: the gateway's own chunks are few and large. */
const JOINED = ['program', 'agent', 'others']

const MAIN = 'main.js'

/** What CommonJS modules of the bundle call; package.json begins each chunk with it. */
const REQUIRE =
  "const require=process.getBuiltinModule('node:module').createRequire(import.meta.url);"
/** Debian 12 has Node 18, which would end with a stack; whatever file runs first says it. */
const FIRST_LINE = REQUIRE.replace(
  'process.getBuiltinModule(',
  "(process.getBuiltinModule??(()=>{console.error('device-agent: Node '+process.versions.node+' is too old. Use version 20.19 or newer. The packages include Node.js.');process.exit(1)}))(",
)

/** A file with the names of those that it imports. */
interface Chunk {
  readonly imports: readonly string[]
  readonly lazyImports: readonly string[]
  readonly exports: readonly string[]
}
type Chunks = ReadonlyMap<string, Chunk>

const COMMON = {
  absWorkingDir: FOLDER,
  bundle: true,
  format: 'esm',
  platform: 'node',
  target: 'node20.19',
  // A process keeps the text of its program. Short names take 2 MB less of a gateway.
  minify: true,
  lineLimit: 160,
  logLevel: 'warning',
  write: false,
} as const satisfies BuildOptions

const allExternal: Plugin = {
  name: 'all external',
  setup: ({ onResolve }) =>
    onResolve({ filter: /./ }, ({ path, kind }) =>
      kind === 'entry-point' ? undefined : { path, external: true },
    ),
}

async function readChunks(): Promise<Chunks> {
  const files = readdirSync(FOLDER).filter((name) => name.endsWith('.js'))
  const { metafile } = await build({
    ...COMMON,
    entryPoints: files.map((name) => join(FOLDER, name)),
    outdir: FOLDER,
    metafile: true,
    plugins: [allExternal],
  })
  const chunks = Object.entries(metafile.outputs).map(([path, { imports, exports }]) => {
    const named = (wanted: string) =>
      imports
        .filter((it) => it.kind === wanted && it.path.startsWith('./'))
        .map((it) => basename(it.path))
    const lazyImports = named('dynamic-import')
    return [basename(path), { imports: named('import-statement'), lazyImports, exports }] as const
  })
  return new Map(chunks)
}

/** The entry's file: lazy ones have a hash in their names. */
function fileOf(entry: string, chunks: Chunks): string {
  const name = new RegExp(`^${entry}(?:-[A-Z0-9]{8})?[.]js$`)
  const [file, ...others] = [...chunks.keys()].filter((it) => name.test(it))
  if (file === undefined || others.length > 0) {
    throw new Error(`${entry} is not one file of the bundle: what is there to join?`)
  }
  return file
}

/** The files and all that they load at once, what is imported before who imports it. */
function loadedBy(entries: readonly string[], chunks: Chunks): Set<string> {
  const visited = new Set<string>()
  const loaded = new Set<string>()
  const visit = (file: string) => {
    if (visited.has(file)) return
    visited.add(file)
    for (const imported of chunks.get(file)?.imports ?? []) visit(imported)
    loaded.add(file)
  }
  for (const entry of entries) visit(fileOf(entry, chunks))
  return loaded
}

/** For each chunk that is joined the file to which it goes, in the order in which they run. */
function planJoins(chunks: Chunks): Map<string, string> {
  const needs = NEEDED_BY.map(([name, entries]) => ({ name, loaded: loadedBy(entries, chunks) }))
  const plan = new Map<string, string>()
  for (const { name, loaded } of needs.filter((it) => JOINED.includes(it.name))) {
    for (const file of loaded) {
      if (file === MAIN || plan.has(file)) continue
      const users = needs.filter((it) => it.loaded.has(file)).map((it) => it.name)
      // What the program begins with is there, but in processes that begin otherwise.
      const key = name === 'program' ? [name, ...users.filter((it) => it === 'checks')] : users
      plan.set(file, `joined-${key.join('-')}.js`)
    }
  }
  return plan
}

/** What a chunk's export is called in the file that it is joined to. */
const longName = (file: string, name: string) =>
  `${basename(file, '.js').replaceAll(/\W/g, '_')}_${name}`

/** What a joined file has to offer of one of its chunks. */
function offer(file: string, { exports }: Chunk): string {
  const names = exports.map((name) => `${name} as ${longName(file, name)}`)
  return names.length === 0 ? `import './${file}'\n` : `export {${names}} from './${file}'\n`
}

/** A chunk that has been joined, for those that go on importing it by its name. */
function standIn(file: string, joined: string, { exports }: Chunk): string {
  const names = exports.map((name) => `${longName(file, name)} as ${name}`)
  return names.length === 0 ? `import './${joined}'\n` : `export {${names}} from './${joined}'\n`
}

function withoutRequire(text: string): string {
  if (!text.includes(REQUIRE)) throw new Error('a chunk does not begin as package.json says')
  return text.replace(REQUIRE, '')
}

/** Takes in the chunks that go to `target`; from the others' files it imports. */
function taking(target: string, chunks: Chunks, plan: ReadonlyMap<string, string>): Plugin {
  return {
    name: 'chunks',
    setup: ({ onResolve, onLoad }) => {
      onResolve({ filter: /./ }, ({ path, kind, namespace }) => {
        const file = basename(path)
        if (kind === 'entry-point') return undefined
        const isOutside = kind === 'dynamic-import' || namespace === 'stand-in'
        if (isOutside || !plan.has(file)) return { path, external: true }
        if (plan.get(file) === target) return { path: join(FOLDER, file) }
        return { path: file, namespace: 'stand-in' }
      })
      // Once a file, not once a chunk: 87 of them took a start 2 ms.
      onLoad({ filter: /./, namespace: 'file' }, ({ path }) => ({
        contents: withoutRequire(readFileSync(path, 'utf8')),
      }))
      onLoad({ filter: /./, namespace: 'stand-in' }, ({ path }) => {
        const [joined = '', chunk] = [plan.get(path), chunks.get(path)]
        return { contents: chunk ? standIn(path, joined, chunk) : '' }
      })
    },
  }
}

async function joinChunks(): Promise<void> {
  const chunks = await readChunks()
  const plan = planJoins(chunks)
  const sourcemap = existsSync(join(FOLDER, `${MAIN}.map`))
  const alone = [...chunks.keys()].filter((file) => !plan.has(file))
  const made = await Promise.all(
    [...new Set(plan.values()), ...alone].map((target) => {
      const offers = [...chunks].filter(([file]) => plan.get(file) === target)
      const inOrder = [...plan.keys()].flatMap((file) => offers.filter(([it]) => it === file))
      const contents = inOrder.map(([file, chunk]) => offer(file, chunk)).join('')
      return build({
        ...COMMON,
        sourcemap,
        plugins: [builtinModules, taking(target, chunks, plan)],
        banner: { js: FIRST_LINE },
        outfile: join(FOLDER, target),
        ...(alone.includes(target)
          ? { entryPoints: [join(FOLDER, target)], allowOverwrite: true }
          : { stdin: { contents, resolveDir: FOLDER, sourcefile: target } }),
      })
    }),
  )
  for (const { path, contents } of made.flatMap((it) => it.outputFiles)) {
    writeFileSync(path, contents)
  }
  const wanted = new Set(
    [...chunks].flatMap(([file, { imports, lazyImports }]) => [
      ...lazyImports,
      ...(plan.has(file) || file === MAIN ? [] : imports),
    ]),
  )
  for (const [file, joined] of plan) {
    rmSync(join(FOLDER, file))
    rmSync(join(FOLDER, `${file}.map`), { force: true })
    const chunk = chunks.get(file)
    if (chunk && wanted.has(file)) writeFileSync(join(FOLDER, file), standIn(file, joined, chunk))
  }
}

await joinChunks()
