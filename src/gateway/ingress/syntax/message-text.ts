import { STATUS_CODES } from '../../../base/net/node-http.ts'
import { type KnownField, knownField } from './known-field.ts'

/** A head as it goes on the wire, latin1; `fields` alternates name and value. */
export function formatHead(line: string, fields: readonly string[]): string {
  return `${line}\r\n${formatFields(fields)}\r\n`
}

/** The lines of fields, without the empty line behind them. */
export function formatFields(fields: readonly string[]): string {
  let text = ''
  for (let at = 0; at < fields.length; at += 2) text += `${fields[at]}: ${fields[at + 1]}\r\n`
  return text
}

/** A status line; without a reason of its own the status gets the usual one. */
export function statusLine(status: number, reason = STATUS_CODES[status] ?? ''): string {
  return `HTTP/1.1 ${status} ${reason}`
}

/** Whether one of the fields has the name, which is in lower case. */
export function hasField(fields: readonly string[], name: string): boolean {
  return fields.some((text, at) => at % 2 === 0 && text.toLowerCase() === name)
}

/** The fields but those with one of the names, which are in lower case. */
export function withoutFields(fields: readonly string[], ...names: KnownField[]): string[] {
  const kept: string[] = []
  for (let at = 0; at < fields.length; at += 2) {
    const name = fields[at] as string
    const known = knownField(name)
    if (known === undefined || !names.includes(known)) kept.push(name, fields[at + 1] as string)
  }
  return kept
}
