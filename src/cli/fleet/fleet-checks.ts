import { nearest } from '../../base/nearest.ts'
import { checkPolicy } from '../../policy/check.ts'
import { stepsOf } from '../../policy/document/problem.ts'
import { shownPath } from '../local/terminal-text.ts'
import type { ListedDevice } from '../provision/device-list.ts'
import { BUILT_IN, type Fleet, isFor, type TunnelSet, VARIABLE, variablesOf } from './fleet-file.ts'
import { namesText } from './fleet-text.ts'

type Device = Pick<ListedDevice, 'name' | 'tags'>

/** More than a person reads. */
const MAX_NAMES = 10

/** Mistakes and warnings, each with its place, once for all devices. */
export interface FleetProblems {
  readonly mistakes: readonly string[]
  /** Rules of policies that only another gateway or service may refuse. The devices decide. */
  readonly warnings: readonly string[]
}

/** Checks the form of the file, then names that match nothing, then policies. */
export function checkFleet(
  fleet: Fleet,
  devices: readonly (Device & Pick<ListedDevice, 'agentDomain'>)[],
): FleetProblems {
  const { leftOut } = fleet
  // A name that a left-out value has set is not unknown.
  const isOutside = leftOut.some(([top, , part]) => top !== 'sets' || part !== 'tunnels')
  const policies = checkPolicies(fleet)
  const variables = isOutside ? [] : variableMistakes(fleet, devices)
  const mistakes = [
    ...fleet.mistakes,
    ...referenceMistakes(fleet),
    ...tagMistakes(fleet, devices),
    ...variables,
    ...(isOutside || variables.length > 0 ? [] : domainMistakes(fleet, devices)),
    ...(leftOut.length > 0 ? [] : unusedMistakes(fleet)),
    ...deviceMistakes(fleet, devices),
    ...policies.mistakes,
  ]
  return { mistakes, warnings: policies.warnings }
}

/** Policies that tunnels name and the file does not have. */
function referenceMistakes({ policies, sets, leftOut, placeOf }: Fleet): string[] {
  if (leftOut.some((keys) => keys[0] === 'policies' || keys.length === 1)) return []
  const known = Object.keys(policies)
  return Object.entries(sets).flatMap(([set, { tunnels }]) =>
    tunnels.flatMap(({ policy }, at) => {
      if (policy === null || policy === undefined || policy in policies) return []
      const meant = nearest(policy, known)
      const remedy =
        meant === undefined
          ? `Known policies: ${namesText(known, MAX_NAMES) || 'none'}.`
          : `Did you mean ${meant}?`
      const place = placeOf(['sets', set, 'tunnels', at, 'policy'])
      return [`${place}: The policy ${policy} is unknown. ${remedy}`]
    }),
  )
}

/** As `policy check --hosted`: the file does not say which service the devices use. */
function checkPolicies({ policies, placeOf }: Fleet): FleetProblems {
  const problems = Object.entries(policies).flatMap(([name, { policy, path }]) => {
    const text = typeof policy === 'string' ? policy : JSON.stringify(policy)
    return checkPolicy(text, { service: 'hosted' }).map((problem) => {
      const { severity, pointer, position, message, code } = problem
      const place =
        path === undefined
          ? placeOf(['policies', name, ...stepsOf(pointer)])
          : `${path}:${position.line}:${position.column}`
      return { severity, line: `${place}: ${message} (${code})` }
    })
  })
  const linesOf = (wanted: string) =>
    problems.flatMap(({ severity, line }) => (severity === wanted ? [line] : []))
  return { mistakes: linesOf('error'), warnings: linesOf('warning') }
}

function tagMistakes({ sets, placeOf }: Fleet, devices: readonly Device[]): string[] {
  const known = knownTags(devices)
  return Object.entries(sets).flatMap(([name, set]) => {
    const path = ['sets', name, 'tags']
    const unknown = set.tags.flatMap((tag, at) =>
      known.includes(tag) ? [] : [`${placeOf([...path, at])}: ${noDeviceHas(tag, known)}`],
    )
    if (unknown.length > 0 || devices.some((device) => isFor(set, device))) return unknown
    return [`${placeOf(path)}: No device has all of the tags ${set.tags.join(', ')}.`]
  })
}

/** `No device has the tag garge. Did you mean garage?` */
export function noDeviceHas(tag: string, known: readonly string[]): string {
  const meant = nearest(tag, known)
  const remedy =
    meant === undefined
      ? `Known tags: ${namesText(known, MAX_NAMES) || 'none'}.`
      : `Did you mean ${meant}?`
  return `No device has the tag ${tag}. ${remedy}`
}

export function knownTags(devices: readonly Device[]): string[] {
  return [...new Set(devices.flatMap(({ tags }) => tags))].sort()
}

interface Use {
  readonly variable: string
  readonly set: string
  readonly path: readonly PropertyKey[]
}

/** Each variable in the templates of a set. */
function usesOf(name: string, { tunnels }: TunnelSet): Use[] {
  return tunnels.flatMap((tunnel, at) =>
    (['protocol', 'domain', 'forwards_to'] as const).flatMap((field) =>
      [...(tunnel[field] ?? '').matchAll(VARIABLE)].map(([, variable = '']) => ({
        variable,
        set: name,
        path: ['sets', name, 'tunnels', at, field],
      })),
    ),
  )
}

function variableMistakes(fleet: Fleet, devices: readonly Device[]): string[] {
  const { vars, deviceVars, sets, placeOf } = fleet
  return Object.entries(sets).flatMap(([name, set]) => {
    const forAll = new Set<string>([...BUILT_IN, ...Object.keys(vars), ...Object.keys(set.vars)])
    const anywhere = new Set([...forAll, ...Object.values(deviceVars).flatMap(Object.keys)])
    const members = devices.filter((device) => isFor(set, device))
    return usesOf(name, set).flatMap(({ variable, path }) => {
      if (forAll.has(variable)) return []
      const place = placeOf(path, `{${variable}}`)
      if (!anywhere.has(variable)) {
        const meant = nearest(variable, anywhere)
        const remedy = meant === undefined ? SET_IT : `Did you mean {${meant}}?`
        return [`${place}: The variable {${variable}} is unknown. ${remedy}`]
      }
      const without = members.filter((it) => deviceVars[it.name]?.[variable] === undefined)
      if (without.length === 0) return []
      const names = namesText(
        without.map((it) => it.name),
        MAX_NAMES,
      )
      return [`${place}: {${variable}} has no value for ${names}. ${SET_IT}`]
    })
  })
}

const SET_IT = 'Set it in vars, in vars of the set, or in device_vars.'

/** Domains of several devices. One device would get the tunnel, and the others would be refused. */
function domainMistakes(
  fleet: Fleet,
  devices: readonly (Device & Pick<ListedDevice, 'agentDomain'>)[],
): string[] {
  const users = new Map<string, { domain: string; place: string; names: Set<string> }>()
  for (const [set, content] of Object.entries(fleet.sets)) {
    for (const device of devices.filter((it) => isFor(content, it))) {
      const values = variablesOf(fleet, device, content)
      const filled = (text: string) =>
        text.replaceAll(VARIABLE, (whole, variable: string) => String(values[variable] ?? whole))
      for (const [at, tunnel] of content.tunnels.entries()) {
        if (tunnel.domain === undefined || tunnel.pooling_enabled) continue
        const domain = filled(tunnel.domain)
        const key = `${filled(tunnel.protocol)} ${domain}`
        const place = () => fleet.placeOf(['sets', set, 'tunnels', at, 'domain'])
        const use = users.get(key) ?? { domain, place: place(), names: new Set() }
        users.set(key, use)
        use.names.add(device.name)
      }
    }
  }
  const shared = [...users.values()].filter(({ names }) => names.size > 1)
  // A template may give many pairs of devices the same domain.
  const byPlace = new Map(shared.reverse().map((it) => [it.place, it]))
  return [...byPlace.values()].reverse().map(({ domain, place, names }) => {
    const owners = namesText([...names], MAX_NAMES)
    return `${place}: ${owners} would have the same domain ${domain}. Put {name} into it, or set pooling_enabled.`
  })
}

/** A value that no template uses is often a typing error, and the template has another value. */
function unusedMistakes({ vars, deviceVars, sets, placeOf }: Fleet): string[] {
  const uses = Object.entries(sets).flatMap(([name, set]) => usesOf(name, set))
  const check = (path: readonly string[], values: object, some: readonly Use[]) => {
    const used = new Set(some.map(({ variable }) => variable))
    return Object.keys(values).flatMap((variable) => {
      if (used.has(variable)) return []
      const meant = nearest(variable, used)
      const remedy = meant === undefined ? 'Remove it.' : `Did you mean ${meant}?`
      return [
        `${placeOf([...path, variable])}: The variable ${variable} is used in no tunnel. ${remedy}`,
      ]
    })
  }
  return [
    ...check(['vars'], vars, uses),
    ...Object.entries(sets).flatMap(([name, set]) =>
      check(
        ['sets', name, 'vars'],
        set.vars,
        uses.filter((use) => use.set === name),
      ),
    ),
    ...Object.entries(deviceVars).flatMap(([name, values]) =>
      check(['device_vars', name], values, uses),
    ),
  ]
}

function deviceMistakes(
  { deviceVars, devicesPath, placeOf }: Fleet,
  devices: readonly Device[],
): string[] {
  const names = devices.map(({ name }) => name)
  const listed = new Set(names)
  return Object.keys(deviceVars).flatMap((name) => {
    if (listed.has(name)) return []
    const meant = nearest(name, names)
    const remedy = meant === undefined ? 'Remove its variables.' : `Did you mean ${meant}?`
    const place = placeOf(['device_vars', name])
    return [`${place}: ${shownPath(devicesPath)} contains no device named ${name}. ${remedy}`]
  })
}

/** Why no set applies to the device. */
export function whyUnmanaged({ sets }: Pick<Fleet, 'sets'>, { tags }: Device): string {
  const wanted = Object.values(sets).map((set) => set.tags)
  if (wanted.length === 0) return 'The file has no sets.'
  if (tags.length === 0) return 'Without tags, and each set requires tags.'
  const known = new Set(wanted.flat())
  const typed = tags.find((tag) => !known.has(tag))
  const meant = typed === undefined ? undefined : nearest(typed, known)
  const remedy = meant === undefined ? '' : ` Did you mean ${meant} for ${typed}?`
  return `No set matches the tags ${namesText(tags, MAX_NAMES)}.${remedy}`
}
