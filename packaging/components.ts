import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { ProgramFolder } from './program-folder.ts'
import { ROOT, readJson, readLock } from './project.ts'

/** Somebody else's work that is in a package. */
export interface Component {
  readonly name: string
  readonly version: string
  /** SPDX expression, as its package says. */
  readonly license: string
  /** `sha512-…` of the package in the registry, or `sha256-…`. */
  readonly integrity: string | undefined
  /** Texts of its licences and notices. */
  readonly notices: readonly string[]
  /** Where it is from; default: the npm registry. */
  readonly purl?: string
}

/** Throws when the lock file names a licence of the program's dependencies that nobody has accepted. */
export function refuseForeignDependencies(lock = readLock()): void {
  const shipped = Object.entries(lock).filter(([path, { dev }]) => path !== '' && !dev)
  refuseForeignTerms(
    shipped.map(([path, { license = 'no licence' }]) => ({
      name: path.replace(/^.*node_modules\//, ''),
      license,
    })),
  )
}

/** What went into the bundle and what lies beside it, each once, by name and version. */
export function componentsOf({ bundled, runtime }: ProgramFolder): readonly Component[] {
  const lock = readLock()
  const found = [
    ...bundled.map((path) => describe(join(ROOT, path), lock[path]?.integrity)),
    ...runtime.map(({ pinned, source }) => describe(source, pinned.integrity)),
  ]
  const byName = new Map(found.map((one) => [`${one.name}@${one.version}`, one]))
  return [...byName.keys()].sort().flatMap((key) => byName.get(key) ?? [])
}

function describe(folder: string, integrity: string | undefined): Component {
  const manifest = readJson(join(folder, 'package.json')) as {
    name: string
    version: string
    license?: string | { type: string }
  }
  const { name, version, license } = manifest
  const notices = readdirSync(folder)
    .filter((file) => /^(?:licen[cs]e|copying|notice)/i.test(file))
    .sort()
    .map((file) => readFileSync(join(folder, file), 'utf8').trim())
  return {
    name,
    version,
    license: (typeof license === 'object' ? license.type : license) ?? licenseIn(name, notices),
    integrity,
    notices,
  }
}

/** Node's own packages name none; their text begins with it. */
function licenseIn(name: string, notices: readonly string[]): string {
  if (notices.some((text) => text.includes('Permission is hereby granted'))) return 'MIT'
  throw new Error(`the package ${name} names no licence: look, and say which`)
}

/** All notices in one text: each component, then the texts, those of several components once. */
export function noticesText(components: readonly Component[]): string {
  const parts = new Map<string, string[]>()
  for (const { name, version, license, notices } of components) {
    const text =
      notices.length > 0
        ? notices.join('\n\n')
        : `Licence: ${license}. The package contains no licence text.`
    parts.set(text, [...(parts.get(text) ?? []), `${name} ${version} (${license})`])
  }
  const line = '-'.repeat(80)
  const texts = [...parts].map(([text, names]) => `${line}\n${names.join('\n')}\n\n${text}\n`)
  return `device-agent contains third-party software. Each component is listed with its licence and licence text.\n\n${texts.join('\n')}`
}

/** Throws when a component may only be passed on under terms that Apache-2.0 cannot meet. */
export function refuseForeignTerms(
  components: readonly Pick<Component, 'name' | 'license'>[],
): void {
  const allowed =
    /^(?:MIT|MIT-0|ISC|0BSD|BSD-[23]-Clause|Apache-2\.0|Unlicense|CC0-1\.0|BlueOak-1\.0\.0|Python-2\.0)$/
  const foreign = components.filter(({ license }) => {
    const either = license.replaceAll(/[()]/g, '').split(/ OR /)
    return !either.some((one) => one.split(' AND ').every((part) => allowed.test(part.trim())))
  })
  if (foreign.length > 0) {
    const names = foreign.map(({ name, license }) => `${name} (${license})`)
    throw new Error(
      `Licences that nobody has accepted: ${names.join(', ')}. Add each to packaging/components.ts, or remove the dependency.`,
    )
  }
}
