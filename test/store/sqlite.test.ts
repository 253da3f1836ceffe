import { cpSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { StartError } from '../../src/base/app-error.ts'
import { missingBuild } from '../../src/base/machine.ts'
import { loadSqlite, packageFor, Sqlite } from '../../src/store/sqlite.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const here = createRequire(import.meta.url)
const suiting = packageFor(process.versions)

/** The folder of an installed package. */
const folderOf = (name: string) => dirname(here.resolve(`${name}/package.json`))

/** A project folder with the suiting package in it, and what resolves from there. */
function projectWithCopy() {
  const folder = temporaryFolder()
  const copy = join(folder, 'node_modules', suiting.name)
  const withoutSources = (path: string) => !/\/(deps|src|obj|obj\.target)$/.test(path)
  cpSync(folderOf(suiting.name), copy, { recursive: true, filter: withoutSources })
  // The one package that 12 needs to find its native part.
  if (suiting.major === 12) symlinkSync(folderOf('bindings'), join(copy, '../bindings'))
  return { copy, load: createRequire(join(folder, 'project.js')) }
}

describe('packageFor', () => {
  it.each([
    [{ node: '20.19.0', napi: '9' }, 'better-sqlite3-node20', 12],
    [{ node: '20.20.2', napi: '9' }, 'better-sqlite3-node20', 12],
    [{ node: '22.14.0', napi: '10' }, 'better-sqlite3', 13],
    [{ node: '24.21.0', napi: '10' }, 'better-sqlite3', 13],
    [{ node: '26.10.0', napi: '11' }, 'better-sqlite3', 13],
  ])('gives %j %s', (versions, name, major) => {
    expect(packageFor(versions)).toEqual({ name, major })
  })

  it.each([
    { node: '22.13.1', napi: '9' },
    { node: '21.7.3', napi: '9' },
    { node: '18.20.8', napi: '9' },
  ])('refuses %j in a sentence', (versions) => {
    const refused = () => packageFor(versions)
    expect(refused).toThrow(StartError)
    expect(refused).toThrow(`Node.js ${versions.node} is not supported. Use Node.js 24 or newer,`)
  })
})

describe('loadSqlite', () => {
  it('gives the installed library, which works', () => {
    const database = new Sqlite(':memory:')
    expect(database.prepare('SELECT 1 AS one').get()).toEqual({ one: 1 })
    database.close()
  })

  it('loads a copy in another project', () => {
    const { load } = projectWithCopy()
    expect(loadSqlite(process.versions, load)).not.toBe(Sqlite)
  })

  it('says so when nothing is installed', () => {
    const load = createRequire(join(temporaryFolder(), 'project.js'))
    expect(() => loadSqlite(process.versions, load)).toThrow(
      new StartError(
        `Cannot load SQLite on Node.js ${process.versions.node} (Cannot find module ` +
          `'${suiting.name}'). Install device-agent again with this Node.js version. In a clone, run ` +
          '`npm run setup`.',
      ),
    )
  })

  it('says so when the native part was not built', () => {
    const { copy, load } = projectWithCopy()
    for (const name of ['build', 'prebuilds'])
      rmSync(join(copy, name), { recursive: true, force: true })
    expectOneSentence(
      () => loadSqlite(process.versions, load),
      /\((Could not locate the bindings file|Cannot find module '[^']*')\)\. /,
    )
  })

  it('says what to install on a machine for which there is no build', () => {
    const load = createRequire(join(temporaryFolder(), 'project.js'))
    const machine = { node: '24.1.0', arch: 'arm', arm: '7' }
    expect(() => loadSqlite({ node: '24.1.0', napi: '10' }, load, machine)).toThrow(
      new StartError(missingBuild('SQLite', machine)),
    )
    // One that was compiled there is used.
    expect(loadSqlite(process.versions, here, machine)).toBe(Sqlite)
  })

  it('says so when the native part is of another machine', () => {
    const { copy, load } = projectWithCopy()
    const built = join(copy, 'build/Release')
    mkdirSync(built, { recursive: true })
    writeFileSync(join(built, 'better_sqlite3.node'), 'ELF of a machine that is not this one')
    expectOneSentence(() => loadSqlite(process.versions, load), /better_sqlite3\.node: /)
  })

  it('never opens a database with the version of another Node', () => {
    const { copy, load } = projectWithCopy()
    const other = suiting.major === 12 ? '13.2.0' : '12.11.1'
    writeFileSync(
      join(copy, 'package.json'),
      JSON.stringify({ version: other, main: 'lib/index.js' }),
    )
    const said = `(${suiting.name} is version ${other})`
    expect(() => loadSqlite(process.versions, load)).toThrow(said)
  })
})

/** A sentence for people: one line, one full stop, and what the library said in the brackets. */
function expectOneSentence(action: () => unknown, said: RegExp): void {
  expect(action).toThrow(StartError)
  expect(action).toThrow(said)
  expect(action).toThrow(
    /^Cannot load SQLite on Node.js [^\n]*\)\. Install [^\n]*`npm run setup`\.$/,
  )
}
