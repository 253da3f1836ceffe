import { readFileSync } from 'node:fs'
import { StartError } from '../../base/app-error.ts'

/** A DNS label: the name becomes part of domains and of file names. */
const NAME = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/
const MAX_DEVICES = 10_000
/** More than a person corrects at once. */
const MAX_PROBLEMS = 10

/** Throws a StartError unless the name can be a device's. */
export function checkDeviceName(name: string): void {
  if (!NAME.test(name)) throw new StartError(`The name ${JSON.stringify(name)} ${WHY_NOT}.`)
}

const WHY_NOT = 'is not a valid device name: use up to 63 lower-case letters, digits and hyphens'

/**
 * The device names in a file, one on each line; empty lines and `# comments` are skipped.
 * Throws a StartError that names every bad line.
 */
export function readDeviceNames(path: string): string[] {
  const names = new Map<string, number>()
  const problems: string[] = []
  for (const [at, line] of readLines(path).entries()) {
    const name = line.replace(/(^|\s)#.*$/, '').trim()
    if (name === '') continue
    const first = names.get(name)
    if (first !== undefined) problems.push(`${path}:${at + 1}: ${name} is already in line ${first}`)
    else if (!NAME.test(name))
      problems.push(`${path}:${at + 1}: ${JSON.stringify(name)} ${WHY_NOT}`)
    else names.set(name, at + 1)
  }
  const [shown, rest] = [problems.slice(0, MAX_PROBLEMS), problems.length - MAX_PROBLEMS]
  if (rest > 0) shown.push(`and ${rest} more`)
  if (problems.length > 0) throw new StartError(shown.join('\n'))
  if (names.size === 0)
    throw new StartError(`${path} contains no device names. Write one name per line.`)
  if (names.size > MAX_DEVICES) {
    throw new StartError(`${path} contains ${names.size} devices. The limit is ${MAX_DEVICES}.`)
  }
  return [...names.keys()]
}

function readLines(path: string): string[] {
  try {
    return readFileSync(path, 'utf8')
      .replace(/^\ufeff/, '')
      .split(/\r?\n/)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    const why = code === 'ENOENT' ? 'file not found' : code
    throw new StartError(`Cannot read the list ${path}: ${why}.`, { cause: error })
  }
}
