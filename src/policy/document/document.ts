import { PHASES, type Phase } from '../phase.ts'
import {
  meantField,
  meantPhase,
  otherDocument,
  strayField,
  unknownField,
} from './mistaken-documents.ts'
import { child, type ProblemList } from './problem.ts'

/** Rules of all phases together. */
const MAX_RULES = 200
/** Expressions, and actions, of one rule. */
const MAX_ITEMS = 50
/** Values inside each other in the configuration of an action. */
const MAX_DEPTH = 20

/** Names of phases before 2024-10, which policies of old agents still have. */
const LEGACY_PHASES: ReadonlyMap<string, Phase> = new Map([
  ['inbound', 'on_http_request'],
  ['outbound', 'on_http_response'],
])
/** Phases of the hosted service that this gateway has not. */
const FOREIGN_PHASES = new Set(['on_event_stream_message'])

/** A policy that reads the path refuses ambiguous paths, unless it has this option. */
export const ALLOW_AMBIGUOUS_PATHS = 'allow_ambiguous_paths'
/** `enabled` is of before there were two names for phases: a policy that is switched off and kept. */
const SWITCHES = new Set(['enabled', ALLOW_AMBIGUOUS_PATHS])

/** Fields that belong to the endpoint, but are often written into policies. */
const OF_ENDPOINTS = new Set(['binding', 'bindings', 'pooling_enabled', 'url', 'metadata'])

/** The rules of a document with a valid shape. Configurations are not checked yet. */
export interface PolicyDocument {
  /** False for a document that is switched off: its rules are only checked. */
  readonly isEnabled: boolean
  /** Whether requests pass if the service may read their path differently than the rules. */
  readonly allowsAmbiguousPaths: boolean
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
  /** Undefined if the document has no configuration. */
  readonly config: unknown
}

export interface Sourced<T> {
  readonly pointer: string
  readonly value: T
}

type Fields = Record<string, unknown>

/**
 * Checks the shape of a parsed document, down to the type of each action. Valid parts are returned despite
 * other problems. Parts over a limit are counted, but not read. Pointers begin with `at`.
 */
export function readDocument(value: unknown, problems: ProblemList, at = ''): PolicyDocument {
  const rules: Record<Phase, RuleSource[]> = {
    on_tcp_connect: [],
    on_http_request: [],
    on_http_response: [],
  }
  const other = otherDocument(value)
  const root = other ? undefined : fieldsOf(value)
  if (other) problems.add('unparsable', `${at}${other.pointer}`, other.message)
  if (other) return { isEnabled: true, allowsAmbiguousPaths: false, rules }
  if (!root) {
    const hint = `The policy must be an object with ${PHASES.join(', ')}.`
    problems.add('unparsable', at, hint)
    return { isEnabled: true, allowsAmbiguousPaths: false, rules }
  }
  const isEnabled = readSwitch('enabled', true, root, problems)
  const allowsAmbiguousPaths = readSwitch(ALLOW_AMBIGUOUS_PATHS, false, root, problems)
  let count = 0
  for (const [key, list] of Object.entries(root)) {
    const phase = phaseOf(key, root, problems)
    if (!phase) continue
    const pointer = child(at, key)
    const items = readRuleList(list, pointer, problems)
    for (const [index, item] of items.slice(0, Math.max(0, MAX_RULES - count)).entries()) {
      const rule = readRule(item, child(pointer, index), problems)
      if (rule) rules[phase].push(rule)
    }
    count += items.length
  }
  if (count > MAX_RULES) {
    problems.add(
      'tooManyRules',
      '',
      `The policy has ${count} rules; at most ${MAX_RULES} are allowed.`,
    )
  }
  return { isEnabled, allowsAmbiguousPaths, rules }
}

function readSwitch(key: string, unset: boolean, root: Fields, problems: ProblemList): boolean {
  const value = key in root ? root[key] : unset
  if (typeof value === 'boolean') return value
  problems.add('badValue', child('', key), `${key} must be true or false.`)
  return unset
}

const isLegacy = (root: Fields) => 'inbound' in root || 'outbound' in root

/** The phase of the rules under a key, if it can be guessed. */
function phaseOf(key: string, root: Fields, problems: ProblemList): Phase | undefined {
  const pointer = child('', key)
  if (SWITCHES.has(key)) return undefined
  const legacy = LEGACY_PHASES.get(key)
  if (legacy) return legacy
  const phase = PHASES.find((name) => name === key)
  if (phase && isLegacy(root)) {
    problems.add('badValue', pointer, `${key} cannot be combined with inbound and outbound.`)
  }
  if (phase) return phase
  if (FOREIGN_PHASES.has(key)) {
    const sentence = `${key} is not available at a gateway: events are forwarded unchanged, and no other action changes them.`
    problems.add('notAvailable', pointer, sentence, { isForeign: true })
    return undefined
  }
  if (OF_ENDPOINTS.has(key)) {
    const sentence = `${key} is not part of a policy. Set it as an option of the endpoint.`
    problems.add('badValue', pointer, sentence)
    return undefined
  }
  const stray = strayField(key)
  if (stray !== undefined) {
    problems.add('badValue', pointer, stray)
    return undefined
  }
  const meant = meantPhase(key)
  const hint = meant ? `did you mean ${meant}?` : `use ${PHASES.join(', ')}.`
  problems.add('badValue', pointer, `${key} is not a phase: ${hint}`)
  return meant
}

function readRuleList(value: unknown, pointer: string, problems: ProblemList): readonly unknown[] {
  // A phase that is written with nothing below it: YAML makes null of that.
  if (value === null) return []
  if (Array.isArray(value)) return value
  const message = `${pointer.slice(1)} must be a list of rules. ${
    fieldsOf(value) ? 'Begin each rule with a dash.' : 'Write each rule as an item below it.'
  }`
  problems.add('badValue', pointer, message)
  return []
}

function readRule(value: unknown, pointer: string, problems: ProblemList): RuleSource | undefined {
  const rule = fieldsOf(value)
  if (!rule) {
    const hint = typeof value === 'string' ? ` Write actions: [{type: ${value.slice(0, 40)}}].` : ''
    problems.add('badValue', pointer, `A rule must be an object with actions.${hint}`)
    return undefined
  }
  if ('type' in rule && !('actions' in rule)) {
    const message =
      'An action stands in place of a rule. Put it below actions, with a dash before type.'
    problems.add('noActions', child(pointer, 'type'), message)
    return undefined
  }
  const { name: type = 'deny', config } = rule
  if (config !== undefined && !('actions' in rule)) {
    const shown = typeof type === 'string' && /^[a-z-]+$/.test(type) ? type.slice(0, 40) : 'deny'
    const message = `config belongs to an action. Write actions: [{type: ${shown}, config: …}].`
    problems.add('noActions', child(pointer, 'config'), message)
    return undefined
  }
  const meant = refuseUnknownKeys(rule, RULE_FIELDS, pointer, 'a rule', problems)
  const { name = undefined } = rule
  // A list under a mistaken name is read, too: its own mistakes are shown at once.
  const [expressionsKey, actionsKey] = [
    keyOf('expressions', rule, meant),
    keyOf('actions', rule, meant),
  ]
  const { [expressionsKey]: expressions = [], [actionsKey]: actions } = rule
  // The actions stand under another name, or deeper. That is one mistake.
  const isElsewhere = !isList(actions) && (meant.has('actions') || holdsActions(expressions))
  const isWrapped =
    !isList(actions) &&
    !('actions' in rule) &&
    Object.values(rule).some((part) => 'actions' in Object(part))
  if (name !== undefined && typeof name !== 'string') {
    problems.add('badValue', child(pointer, 'name'), 'name must be text.')
  }
  return {
    pointer,
    name: typeof name === 'string' ? name : undefined,
    expressions: readExpressions(expressions ?? [], child(pointer, expressionsKey), problems),
    actions:
      isElsewhere || isWrapped ? [] : readActions(actions, child(pointer, actionsKey), problems),
  }
}

/** The key of a field in a rule: a mistaken name, if a list stands there. */
function keyOf(field: string, rule: Fields, meant: ReadonlyMap<string, string>): string {
  const key = meant.get(field)
  return key !== undefined && isList(rule[key]) ? key : field
}

const RULE_FIELDS = ['name', 'expressions', 'actions'] as const
const isList = (value: unknown): value is readonly unknown[] => Array.isArray(value)
const holdsActions = (value: unknown) =>
  isList(value) && value.some((item) => 'actions' in Object(item))

function readExpressions(
  value: unknown,
  pointer: string,
  problems: ProblemList,
): Sourced<string>[] {
  if (!Array.isArray(value)) {
    const hint = typeof value === 'string' ? ' Begin it with a dash.' : ''
    problems.add('badValue', pointer, `expressions must be a list of strings.${hint}`)
    return []
  }
  return within(value, pointer, 'expressions', problems).flatMap((item, index) => {
    if (typeof item === 'string') return { pointer: child(pointer, index), value: item }
    const sentence =
      'actions' in Object(item)
        ? 'actions stands among the expressions. Indent it like expressions, without a dash.'
        : 'An expression must be a string. Put it in quotes.'
    problems.add('badValue', child(pointer, index), sentence)
    return []
  })
}

function readActions(value: unknown, pointer: string, problems: ProblemList): ActionSource[] {
  if (typeof value === 'string' && /^[a-z-]+$/.test(value)) {
    const message = `actions must be a list. Write actions: [{type: ${value.slice(0, 40)}}].`
    problems.add('noActions', pointer, message)
    return []
  }
  if (fieldsOf(value)) {
    problems.add('noActions', pointer, 'actions must be a list. Begin each action with a dash.')
    return []
  }
  if (typeof value === 'string' && value !== '') {
    problems.add(
      'noActions',
      pointer,
      'actions must be a list, not text. Remove the quotes around it.',
    )
    return []
  }
  if (!Array.isArray(value) || value.length === 0) {
    problems.add('noActions', pointer, 'A rule needs at least one action.')
    return []
  }
  return within(value, pointer, 'actions', problems).flatMap(
    (item, index) => readAction(item, child(pointer, index), problems) ?? [],
  )
}

function readAction(
  value: unknown,
  pointer: string,
  problems: ProblemList,
): ActionSource | undefined {
  const action = fieldsOf(value)
  if (!action) {
    const hint = typeof value === 'string' ? ` Write type: ${value.slice(0, 40)}.` : ''
    problems.add('badValue', pointer, `An action must be an object with a type.${hint}`)
    return undefined
  }
  const [only, ...others] = Object.keys(action)
  if (
    !('type' in action) &&
    only !== undefined &&
    only !== 'config' &&
    others.length === 0 &&
    fieldsOf(action[only])
  ) {
    const message = `The action has no type. Write type: ${only}, and its fields below config.`
    problems.add('badValue', pointer, message)
    return undefined
  }
  const { type, config } = action
  const meant = refuseUnknownKeys(action, ACTION_FIELDS, pointer, 'an action', problems)
  if (meant.has('type')) return undefined
  if (typeof type !== 'string') {
    problems.add('badValue', child(pointer, 'type'), 'The action has no type.')
    return undefined
  }
  if (depthOf(config) > MAX_DEPTH) {
    const message = `The configuration is nested more than ${MAX_DEPTH} levels deep.`
    problems.add('tooDeep', child(pointer, 'config'), message)
    return undefined
  }
  return { pointer, type, config: config ?? undefined }
}

const ACTION_FIELDS = ['type', 'config'] as const

/** The items of a list that are looked at. */
function within(
  list: readonly unknown[],
  pointer: string,
  what: string,
  problems: ProblemList,
): readonly unknown[] {
  if (list.length <= MAX_ITEMS) return list
  const message = `The rule has ${list.length} ${what}; at most ${MAX_ITEMS} are allowed.`
  problems.add('tooManyItems', pointer, message)
  return list.slice(0, MAX_ITEMS)
}

/** Returns the known fields that stand under other names, with these names. */
function refuseUnknownKeys(
  fields: Fields,
  known: readonly string[],
  pointer: string,
  what: string,
  problems: ProblemList,
): ReadonlyMap<string, string> {
  const meant = new Map<string, string>()
  for (const key of Object.keys(fields)) {
    if (known.includes(key)) continue
    const free = known.filter((name) => !(name in fields))
    const field = meantField(key, free)
    if (field !== undefined && !meant.has(field)) meant.set(field, key)
    const isOfConfig = field === undefined && what === 'an action'
    const message = isOfConfig
      ? `${key} is not a field of an action. Put fields of the action below config.`
      : unknownField(key, field, what, known)
    problems.add('badValue', child(pointer, key), message)
  }
  return meant
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
