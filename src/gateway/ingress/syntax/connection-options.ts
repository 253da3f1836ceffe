import { consistsOf, TOKEN } from './byte-class.ts'
import { HttpSyntaxError } from './http-syntax-error.ts'

/** Names that take no field away: options, and fields that say where a message goes and ends. */
const NO_FIELDS = new Set([
  'close',
  'keep-alive',
  'upgrade',
  'connection',
  'host',
  'content-length',
  'transfer-encoding',
])

/** What the `Connection` fields of one message say (RFC 9110 7.6.1). */
export interface ConnectionOptions {
  readonly close: boolean
  readonly keepAlive: boolean
  readonly upgrade: boolean
  /** Lower-case names of fields that are for this hop only. */
  readonly fields: readonly string[]
}

export const NO_OPTIONS: ConnectionOptions = {
  close: false,
  keepAlive: false,
  upgrade: false,
  fields: [],
}

const CLOSE: ConnectionOptions = { ...NO_OPTIONS, close: true }
const KEEP_ALIVE: ConnectionOptions = { ...NO_OPTIONS, keepAlive: true }

/** Adds the options of one more `Connection` field to those of the fields before it. */
export function addConnectionOptions(before: ConnectionOptions, value: string): ConnectionOptions {
  if (before === NO_OPTIONS) {
    if (value === 'keep-alive') return KEEP_ALIVE
    if (value === 'close') return CLOSE
  }
  const names = value
    .split(',')
    .map((part) => part.trim().toLowerCase())
    .filter((part) => part !== '')
  if (!names.every((name) => consistsOf(name, 0, name.length, TOKEN))) {
    throw new HttpSyntaxError('an invalid Connection field')
  }
  return {
    close: before.close || names.includes('close'),
    keepAlive: before.keepAlive || names.includes('keep-alive'),
    upgrade: before.upgrade || names.includes('upgrade'),
    fields: [...before.fields, ...names.filter((name) => !NO_FIELDS.has(name))],
  }
}
