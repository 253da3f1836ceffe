import { readdirSync } from 'node:fs'
import { extname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { ROOT, readJson, readManifest } from '../../packaging/project.ts'
import known from '../../packaging/stand-ins/mime-db.json' with { type: 'json' }
import * as unused from '../../packaging/stand-ins/unused.ts'

const types: Readonly<Record<string, { extensions: readonly string[] }>> = known

describe('what the bundle has in place of libraries', () => {
  it('says of each media type what the library says', () => {
    expect(readJson(join(ROOT, 'node_modules/mime-db/db.json'))).toMatchObject(types)
  })

  it('knows the type of every file of the pages, and those that are named', () => {
    const folders = readManifest().scripts.build?.match(/(?<=cp -r )\S+/g) ?? []
    expect(folders.length).toBeGreaterThan(2)
    const files = folders.flatMap((folder) =>
      readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile())
        .map(({ name }) => extname(name).slice(1)),
    )
    const extensions = Object.values(types).flatMap((type) => type.extensions)
    expect(extensions).toEqual(expect.arrayContaining([...new Set(files)]))
    expect(Object.keys(types)).toEqual(expect.arrayContaining(['image/svg+xml', 'text/plain']))
  })

  it('refuses in a sentence to be what it is not', () => {
    for (const use of Object.values(unused)) expect(use).toThrow('not in the program')
  })
})
