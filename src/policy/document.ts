import { parseDocument } from 'yaml'
import { PHASES, type Phase } from './phase.ts'
import { child, type ProblemList } from './problem.ts'

/** Characters of a document. */
const MAX_LENGTH = 131_072
/** Rules of all phases together. */
const MAX_RULES = 200
/** Expressions, and actions, of one rule. */
const MAX_ITEMS = 50
const MAX_DEPTH = 24
/** References to anchors that YAML may resolve: enough for reuse, too few for a bomb. */
const MAX_ALIASES = 100

/** Names of phases before 2024-10, which policies of old agents still have. */
const LEGACY_PHASES: ReadonlyMap<string, Phase> = new Map([
  ['inbound', 'on_http_request'],
  ['outbound', 'on_http_response'],
])
/** Phases of the hosted service that this gateway has not. */
const FOREIGN_PHASES = new Set(['on_event_stream_message'])

/** The rules of a document whose shape is right; configurations are still as they were written. */
export interface PolicyDocument {
  readonly rules: Readonly<Record<Phase, readonly RuleSource[]>>
}

export interface RuleSource {
  readonly pointer: string
  readonly name: string | undefined
  readonly expressions: readonly Sourced<string>[]
  readonly actions: readonly ActionSource[]
}

export interface ActionSource {
  readonly pointer: string
  readonly type: string
  /** Undefined when the document has none. */
  readonly config: unknown
}

export interface Sourced<T> {
  readonly pointer: string
  readonly value: T
}

type Fields = Record<string, unknown>

/** Reads JSON or YAML text; a value that is not text is taken as parsed already. */
export function parsePolicy(source: unknown, problems: ProblemList): unknown {
  if (typeof source !== 'string') return source
  if (source.length > MAX_LENGTH) {
    problems.add('tooLong', '', `The policy is longer than ${MAX_LENGTH} characters.`)
    return undefined
  }
  try {
    const value: unknown = JSON.parse(source)
    // JSON.parse keeps the last of two equal keys in silence; the YAML reader names them.
    if (countKeysIn(source) === countKeys(value)) return value
  } catch {
    // Not JSON.
  }
  return parseYaml(source, problems)
}

function countKeysIn(json: string): number {
  let keys = 0
  for (const [, colon] of json.matchAll(/"(?:[^"\\]|\\.)*"(\s*:)?/g)) if (colon) keys += 1
  return keys
}

function countKeys(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0
  const items: unknown[] = Object.values(value)
  return items.reduce<number>(
    (sum, item) => sum + countKeys(item),
    Array.isArray(value) ? 0 : items.length,
  )
}

function parseYaml(source: string, problems: ProblemList): unknown {
  const document = parseDocument(source, { uniqueKeys: true, logLevel: 'error' })
  const [error] = document.errors
  if (error) {
    const [text = ''] = error.message.split(/ at line \d+, column \d+|\n/, 1)
    const [place] = error.linePos ?? []
    const position = place && { line: place.line, column: place.col }
    problems.add('unparsable', '', `The policy is neither JSON nor YAML: ${text}.`, { position })
    return undefined
  }
  try {
    return document.toJS({ maxAliasCount: MAX_ALIASES })
  } catch (cause) {
    problems.add('unparsable', '', `The policy cannot be read: ${(cause as Error).message}.`)
    return undefined
  }
}

const NO_RULES: PolicyDocument = {
  rules: { on_tcp_connect: [], on_http_request: [], on_http_response: [] },
}

/** Checks the shape of a parsed document, down to the type of each action. */
export function readDocument(value: unknown, problems: ProblemList): PolicyDocument {
  const rules: Record<Phase, RuleSource[]> = {
    on_tcp_connect: [],
    on_http_request: [],
    on_http_response: [],
  }
  if (depthOf(value) > MAX_DEPTH) {
    problems.add('tooDeep', '', `The policy is nested more than ${MAX_DEPTH} deep.`)
    return NO_RULES
  }
  const root = fieldsOf(value)
  if (!root) {
    const hint = `The policy must be an object with ${PHASES.join(', ')}.`
    problems.add('unparsable', '', hint)
    return NO_RULES
  }
  const isDisabled = readDisabled(root, problems)
  for (const [key, list] of Object.entries(root)) {
    const phase = phaseOf(key, root, problems)
    if (phase) rules[phase].push(...readRules(list, child('', key), problems))
  }
  const count = PHASES.reduce((sum, phase) => sum + rules[phase].length, 0)
  if (count > MAX_RULES) {
    problems.add('tooManyRules', '', `The policy has ${count} rules; ${MAX_RULES} are allowed.`)
  }
  return isDisabled || count > MAX_RULES ? NO_RULES : { rules }
}

/** `enabled` stands beside the old names of the phases only. */
function readDisabled(root: Fields, problems: ProblemList): boolean {
  if (!('enabled' in root) || !('inbound' in root || 'outbound' in root)) return false
  if (typeof root.enabled !== 'boolean') {
    problems.add('badValue', '/enabled', 'enabled must be true or false.')
  }
  return root.enabled === false
}

function phaseOf(key: string, root: Fields, problems: ProblemList): Phase | undefined {
  const isLegacy = 'inbound' in root || 'outbound' in root
  if (isLegacy && key === 'enabled') return undefined
  const legacy = LEGACY_PHASES.get(key)
  if (legacy) return legacy
  const phase = PHASES.find((name) => name === key)
  if (phase && isLegacy) {
    problems.add('badValue', child('', key), `${key} cannot stand beside inbound and outbound.`)
    return undefined
  }
  if (phase) return phase
  const isForeign = FOREIGN_PHASES.has(key)
  const sentence = isForeign
    ? `${key} is not available here: use response-body-find-replace.`
    : `${key} is no phase: use ${PHASES.join(', ')}.`
  problems.add(isForeign ? 'notAvailable' : 'badValue', child('', key), sentence, { isForeign })
  return undefined
}

function readRules(value: unknown, pointer: string, problems: ProblemList): RuleSource[] {
  // A phase that is written with nothing below it: YAML makes null of that.
  if (value === null) return []
  if (!Array.isArray(value)) {
    problems.add('badValue', pointer, `${pointer.slice(1)} must be a list of rules.`)
    return []
  }
  return value.flatMap((item, index) => readRule(item, child(pointer, index), problems) ?? [])
}

function readRule(value: unknown, pointer: string, problems: ProblemList): RuleSource | undefined {
  const rule = fieldsOf(value)
  if (!rule) {
    problems.add('badValue', pointer, 'A rule must be an object with actions.')
    return undefined
  }
  refuseUnknownKeys(rule, ['name', 'expressions', 'actions'], pointer, 'a rule', problems)
  const { name = undefined, expressions = [], actions } = rule
  if (name !== undefined && typeof name !== 'string') {
    problems.add('badValue', child(pointer, 'name'), 'name must be text.')
  }
  return {
    pointer,
    name: typeof name === 'string' ? name : undefined,
    expressions: readExpressions(expressions ?? [], child(pointer, 'expressions'), problems),
    actions: readActions(actions, child(pointer, 'actions'), problems),
  }
}

function readExpressions(
  value: unknown,
  pointer: string,
  problems: ProblemList,
): Sourced<string>[] {
  if (!Array.isArray(value)) {
    problems.add('badValue', pointer, 'expressions must be a list of texts.')
    return []
  }
  if (isTooLong(value, pointer, 'expressions', problems)) return []
  return value.flatMap((item, index) => {
    if (typeof item === 'string') return { pointer: child(pointer, index), value: item }
    problems.add('badValue', child(pointer, index), 'An expression must be text.')
    return []
  })
}

function readActions(value: unknown, pointer: string, problems: ProblemList): ActionSource[] {
  if (!Array.isArray(value) || value.length === 0) {
    problems.add('noActions', pointer, 'A rule needs at least one action.')
    return []
  }
  if (isTooLong(value, pointer, 'actions', problems)) return []
  return value.flatMap((item, index) => readAction(item, child(pointer, index), problems) ?? [])
}

function readAction(
  value: unknown,
  pointer: string,
  problems: ProblemList,
): ActionSource | undefined {
  const action = fieldsOf(value)
  if (!action) {
    problems.add('badValue', pointer, 'An action must be an object with a type.')
    return undefined
  }
  refuseUnknownKeys(action, ['type', 'config'], pointer, 'an action', problems)
  const { type, config } = action
  if (typeof type !== 'string') {
    problems.add('badValue', child(pointer, 'type'), 'An action needs a type.')
    return undefined
  }
  return { pointer, type, config: config ?? undefined }
}

function isTooLong(
  list: readonly unknown[],
  pointer: string,
  what: string,
  problems: ProblemList,
): boolean {
  if (list.length <= MAX_ITEMS) return false
  const message = `The rule has ${list.length} ${what}; ${MAX_ITEMS} are allowed.`
  problems.add('tooManyItems', pointer, message)
  return true
}

function refuseUnknownKeys(
  fields: Fields,
  known: readonly string[],
  pointer: string,
  what: string,
  problems: ProblemList,
): void {
  for (const key of Object.keys(fields)) {
    if (known.includes(key)) continue
    problems.add('badValue', child(pointer, key), `${key} is no field of ${what}.`)
  }
}

function fieldsOf(value: unknown): Fields | undefined {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Fields)
    : undefined
}

function depthOf(value: unknown, depth = 0): number {
  if (typeof value !== 'object' || value === null || depth > MAX_DEPTH) return depth
  return Object.values(value).reduce(
    (deepest: number, item) => Math.max(deepest, depthOf(item, depth + 1)),
    depth,
  )
}
