import { isUtf8 } from 'node:buffer'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { StartError } from '../../base/app-error.ts'
import { ERROR_KINDS, type ErrorKind } from './error-kind.ts'
import { MAX_PAGE_BYTES, PageProblem, PageTemplate } from './page-template.ts'

const SETTING = 'GATEWAY_ERROR_PAGES'
const NAMES = ERROR_KINDS.map((kind) => `${kind}.html`)

/** The pages of a folder by kind. Files that do not end in `.html` are ignored. Throws a StartError. */
export function readPageFolder(folder: string | undefined): ReadonlyMap<ErrorKind, PageTemplate> {
  if (folder === undefined) return new Map()
  const names = readNames(folder).filter((name) => name.endsWith('.html'))
  const unknown = names.find((name) => !NAMES.includes(name))
  if (unknown !== undefined) {
    throw problem(join(folder, unknown), `the name is unknown. Names are ${NAMES.join(', ')}`)
  }
  const kinds = ERROR_KINDS.filter((kind) => names.includes(`${kind}.html`))
  return new Map(kinds.map((kind) => [kind, readPage(join(folder, `${kind}.html`))]))
}

function readNames(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch (error) {
    throw problem(folder, `the folder cannot be read (${(error as NodeJS.ErrnoException).code})`)
  }
}

function readPage(path: string): PageTemplate {
  const bytes = readBytes(path)
  if (!isUtf8(bytes)) throw problem(path, 'it is not UTF-8')
  try {
    return PageTemplate.parse(bytes.toString().replace(/^\ufeff/, ''))
  } catch (error) {
    if (!(error instanceof PageProblem)) throw error
    throw problem(path, error.message)
  }
}

function readBytes(path: string): Buffer {
  try {
    const stat = statSync(path)
    if (!stat.isFile()) throw problem(path, 'it is not a file')
    if (stat.size > MAX_PAGE_BYTES) {
      throw problem(path, `it has ${stat.size} bytes; at most ${MAX_PAGE_BYTES} are allowed`)
    }
    return readFileSync(path)
  } catch (error) {
    if (error instanceof StartError) throw error
    throw problem(path, `it cannot be read (${(error as NodeJS.ErrnoException).code})`)
  }
}

function problem(path: string, reason: string): StartError {
  return new StartError(`${SETTING}: ${path}: ${reason.replace(/\.$/, '')}.`)
}
