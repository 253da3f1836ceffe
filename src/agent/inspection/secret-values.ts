import { ReadSecrets } from '../../base/read-secrets.ts'
import type { RecordedExchange } from './recorded-exchange.ts'

/** Shorter values would be masked everywhere. The gateway refuses shorter secrets, too. */
const MIN_VALUE = 4
/** Each value costs a pass through all texts of an exchange. */
const MAX_VALUES = 20
const SECRET = /\bsecrets\s*\.\s*get\s*\(/
const INTERPOLATION = /\$\{[^}]*\}/

type Policy = Readonly<Record<string, unknown>>

/** Texts around the secret in a header, such as `Bearer ` and nothing. */
interface SecretHeader {
  readonly name: string
  readonly before: string
  readonly after: string
}

/**
 * Secret values in the requests of a tunnel. The device does not know the secrets of its gateway, but its
 * policy says which headers have them. The values are masked wherever an exchange has them.
 */
export class SecretValues {
  readonly #headers: readonly SecretHeader[]

  constructor(policy: Policy | null) {
    this.#headers = secretHeaders(policy)
  }

  /** Masks the view of an exchange. */
  mask<View>(view: View, { request }: RecordedExchange): View {
    const secrets = new ReadSecrets()
    const values = new Set<string>()
    for (const { name, before, after } of this.#headers) {
      for (const [field, text] of request.fields) {
        if (field.toLowerCase() !== name || values.size >= MAX_VALUES) continue
        const isAsMade = text.startsWith(before) && text.endsWith(after)
        const value = isAsMade ? text.slice(before.length, text.length - after.length) : text
        if (value.length < MIN_VALUE) continue
        values.add(value)
        secrets.add(value)
      }
    }
    return secrets.maskJson(view)
  }
}

function secretHeaders(policy: Policy | null): SecretHeader[] {
  const actions = listOf(policy?.on_http_request).flatMap((rule) =>
    listOf(fieldOf(rule, 'actions')),
  )
  const configs = (type: string) =>
    actions.flatMap((action) =>
      fieldOf(action, 'type') === type ? [fieldOf(action, 'config')] : [],
    )
  const vars = configs('set-vars')
    .flatMap((config) => listOf(fieldOf(config, 'vars')))
    .flatMap((item) => entriesOf(item))
    .filter(([, text]) => SECRET.test(text))
    .map(([name]) => `vars.${name}`)
  return configs('add-headers')
    .flatMap((config) => entriesOf(fieldOf(config, 'headers')))
    .filter(([, text]) => SECRET.test(text) || vars.some((name) => text.includes(name)))
    .map(([name, text]) => {
      const parts = text.split(INTERPOLATION)
      const [before = '', after = ''] = parts.length === 2 ? parts : []
      return { name: name.toLowerCase(), before, after }
    })
}

const listOf = (value: unknown): unknown[] => (Array.isArray(value) ? value : [])

function fieldOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined
}

function entriesOf(value: unknown): [string, string][] {
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([name, text]) =>
    typeof text === 'string' ? [[name, text] as [string, string]] : [],
  )
}
