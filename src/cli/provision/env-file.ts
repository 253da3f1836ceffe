import { readFileSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { parse } from 'dotenv'
import { StartError } from '../../base/app-error.ts'
import { makeFolder, writeFileDurably } from '../../base/file.ts'

/** Settings to write; undefined takes a line out. */
export type EnvSettings = Readonly<Record<string, string | undefined>>

/** A file of settings as `run` and systemd read it. Lines of others stay as they are. */
export class EnvFile {
  readonly path: string
  readonly #text: string
  readonly #isPrivate: boolean

  private constructor(path: string, text: string, isPrivate: boolean) {
    this.path = path
    this.#text = text
    this.#isPrivate = isPrivate
  }

  /** A missing file is empty. Throws a StartError if the file cannot be read. */
  static read(path: string): EnvFile {
    const text = readIfThere(path)
    if (text === undefined) return new EnvFile(path, '', false)
    return new EnvFile(path, text, (statSync(path).mode & 0o077) === 0)
  }

  get(name: string): string | undefined {
    return parse(this.#text)[name]
  }

  /** False when `write` would change nothing. */
  differs(settings: EnvSettings): boolean {
    return !this.#isPrivate || mergeSettings(this.#text, settings) !== this.#text
  }

  /** For this user alone; survives a power cut. Throws a StartError. */
  write(settings: EnvSettings): void {
    writePrivately(this.path, mergeSettings(this.#text, settings))
  }
}

/** The content of a file; undefined if it does not exist. Throws a StartError. */
export function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return undefined
    throw new StartError(`Cannot read ${path} (${code}).`, { cause: error })
  }
}

/** Writes a file for this user alone, with the folders above it. Throws a StartError. */
export function writePrivately(path: string, text: string): void {
  try {
    makeFolder(dirname(path))
    writeFileDurably(path, text)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new StartError(`Cannot write ${path} (${code}).`, { cause: error })
  }
}

/** The text of a file with these settings in it; lines of others stay as they are. Throws a StartError. */
export function mergeSettings(text: string, settings: EnvSettings): string {
  const left = { ...settings }
  const lines = text.split('\n').flatMap((line) => {
    const name = /^\s*(?:export\s+)?(\w+)\s*=/.exec(line)?.[1]
    if (name === undefined || !(name in settings)) return [line]
    const value = left[name]
    // A second line for the same name would win over ours.
    left[name] = undefined
    return value === undefined ? [] : [`${name}=${quoted(name, value)}`]
  })
  const added = Object.entries(left).flatMap(([name, value]) =>
    value === undefined ? [] : [`${name}=${quoted(name, value)}`],
  )
  return `${[lines.join('\n').trimEnd(), ...added].filter((part) => part !== '').join('\n')}\n`
}

/** dotenv and systemd agree on plain words, and on double quotes around text without escapes. */
function quoted(name: string, value: string): string {
  if (/^[\w.:/@%+,*-]+$/.test(value)) return value
  if (/^[^"\\$`\n\r]*$/.test(value)) return `"${value}"`
  // Without the value, which may be a secret.
  throw new StartError(
    `${name} has a character that a settings file cannot hold: a quote, \\, $, \` or a line break. ` +
      'Use a value without it, or its %-code in a URL, such as %24 for $.',
  )
}
