import { nearest } from '../../base/nearest.ts'
import type { ListedDevice } from '../provision/device-list.ts'
import { BUILT_IN, type Fleet, isFor, type TunnelSet, VARIABLE } from './fleet-file.ts'
import { namesText } from './fleet-text.ts'

type Device = Pick<ListedDevice, 'name' | 'tags'>

/** More than a person reads. */
const MAX_NAMES = 10

/**
 * Tags, variables and device names of the file that match nothing. Each mistake has its place, once for all
 * devices.
 */
export function fleetMistakes(fleet: Fleet, devices: readonly Device[]): string[] {
  return [
    ...tagMistakes(fleet, devices),
    ...variableMistakes(fleet, devices),
    ...unusedMistakes(fleet),
    ...deviceMistakes(fleet, devices),
  ]
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
    return [`${place}: ${devicesPath} contains no device named ${name}. ${remedy}`]
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
