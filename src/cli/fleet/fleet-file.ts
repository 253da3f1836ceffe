import { readFileSync } from 'node:fs'
import { dirname, isAbsolute, join, resolve } from 'node:path'
import { LineCounter, parseDocument } from 'yaml'
import * as z from 'zod'
import { TunnelBody } from '../../agent/tunnel.ts'
import { StartError } from '../../base/app-error.ts'
import { type ListenAddress, parseListenAddress } from '../../base/listen-address.ts'
import { errorOffset, yamlSentence } from '../../policy/document/yaml-errors.ts'
import { mistakesError } from '../mistakes.ts'
import type { ListedDevice } from '../provision/device-list.ts'
import { type Keys, readAsFarAsPossible } from './partial-reading.ts'

/** A tunnel as `PUT /tunnels` takes it. */
export interface WantedTunnel {
  readonly protocol: string
  readonly forwards_to: string
  readonly domain?: string
  readonly policy: string | object | null
  readonly upstream?: object
  readonly pooling_enabled?: true
}

/** A variable in a template: `{port}`. */
export const VARIABLE = /\{([\w-]+)\}/g

/**
 * The wanted tunnels of a device; undefined if no set applies, which leaves the device unchanged. Throws a
 * StartError for a variable without a value.
 */
export function wantedTunnels(
  fleet: Fleet,
  device: Pick<ListedDevice, 'name' | 'agentDomain' | 'tags'>,
): WantedTunnel[] | undefined {
  const sets = Object.entries(fleet.sets).filter(([, set]) => isFor(set, device))
  if (sets.length === 0) return undefined
  return sets.flatMap(([name, set]) => tunnelsOf(fleet, device, name, set))
}

/** Whether the device has all tags of the set. */
export function isFor({ tags }: TunnelSet, device: Pick<ListedDevice, 'tags'>): boolean {
  return tags.every((tag) => device.tags.includes(tag))
}

/** Variables that every device has. */
export const BUILT_IN = ['name', 'agent_domain', 'site'] as const

/** The variables of a device in a set. */
export function variablesOf(
  { vars, deviceVars }: Pick<Fleet, 'vars' | 'deviceVars'>,
  { name, agentDomain }: Pick<ListedDevice, 'name' | 'agentDomain'>,
  set: TunnelSet,
): Readonly<Record<string, string | number>> {
  const builtIn: Record<(typeof BUILT_IN)[number], string> = {
    name,
    agent_domain: agentDomain,
    site: siteOf(agentDomain),
  }
  return { ...vars, ...set.vars, ...deviceVars[name], ...builtIn }
}

function tunnelsOf(
  fleet: Fleet,
  listed: Pick<ListedDevice, 'name' | 'agentDomain'>,
  setName: string,
  set: TunnelSet,
): WantedTunnel[] {
  const { name: device } = listed
  const values = variablesOf(fleet, listed, set)
  return set.tunnels.map((template, at) => {
    const filled = (text: string) =>
      text.replaceAll(VARIABLE, (_whole, variable: string) => {
        const value = values[variable]
        if (value !== undefined) return String(value)
        throw new StartError(
          `/sets/${setName}/tunnels/${at}: {${variable}} has no value for ${device}. Set it in vars, in vars of the set, or in device_vars.`,
        )
      })
    return toWanted(template, filled, fleet)
  })
}

/** The domain of the agent without its first label. */
export function siteOf(agentDomain: string): string {
  return agentDomain.split('.').slice(1).join('.')
}

function toWanted(
  { protocol, domain, forwards_to, policy, upstream, pooling_enabled }: TunnelTemplate,
  filled: (text: string) => string,
  { policies }: Fleet,
): WantedTunnel {
  return {
    protocol: filled(protocol),
    forwards_to: filled(forwards_to),
    ...(domain !== undefined && { domain: filled(domain) }),
    policy: policy ? (policies[policy]?.policy ?? null) : null,
    ...(upstream && { upstream }),
    // Agents of before there were pools do not know the field.
    ...(pooling_enabled && { pooling_enabled }),
  }
}

const NAME = /^[\w-]{1,64}$/

const Name = z.string().regex(NAME, 'must be a name: letters, digits, _ and -, 64 at most')
const Variables = z.record(Name, z.union([z.string(), z.number()]))
/** Values with `{variables}`. The device checks the results. */
const Template = z.string().min(1)

const TunnelTemplate = z.strictObject({
  protocol: Template.default('http'),
  domain: Template.optional(),
  forwards_to: z
    .union([Template, z.int()], 'must be an upstream address, such as localhost:8001 or a port')
    .transform(String),
  policy: Name.nullish(),
  upstream: TunnelBody.shape.upstream,
  pooling_enabled: TunnelBody.shape.pooling_enabled,
})

const TunnelSet = z.strictObject({
  tags: z.array(z.string()).default([]),
  vars: Variables.default({}),
  tunnels: z.array(TunnelTemplate),
})

const Address = z.string().transform((text, context): ListenAddress => {
  const address = parseListenAddress(text)
  if (address) return address
  context.addIssue('must be host:port')
  return z.NEVER
})

const FleetSchema = z.strictObject({
  version: z.literal(1, 'must be 1'),
  devices: z.string().default('fleet-devices.jsonl'),
  connect: z.strictObject({ address: Address.optional(), ca: z.string().optional() }).default({}),
  vars: Variables.default({}),
  device_vars: z.record(z.string(), Variables).default({}),
  policies: z
    .record(Name, z.union([z.string(), z.looseObject({})], 'must be a path or a policy'))
    .default({}),
  sets: z.record(Name, TunnelSet),
})

export type TunnelTemplate = z.output<typeof TunnelTemplate>
export type TunnelSet = z.output<typeof TunnelSet>

/** A policy of the file. */
export interface FleetPolicy {
  /** An object, or the text of a file, JSON or YAML. */
  readonly policy: string | object
  /** Path of that file; undefined for a policy in the fleet file. */
  readonly path: string | undefined
}

/** The wanted state of devices, read from a file. Paths are absolute, except those that are shown. */
export interface Fleet {
  /** As given. */
  readonly path: string
  readonly devicesPath: string
  /** Address of the gateway as seen from here, and CAs to trust besides the public CAs. */
  readonly connect: {
    readonly address: ListenAddress | undefined
    readonly caPath: string | undefined
  }
  readonly vars: Readonly<Record<string, string | number>>
  readonly deviceVars: Readonly<Record<string, Readonly<Record<string, string | number>>>>
  readonly policies: Readonly<Record<string, FleetPolicy>>
  readonly sets: Readonly<Record<string, TunnelSet>>
  /** Mistakes found while reading, each with its place. With mistakes, only checks may use the rest. */
  readonly mistakes: readonly string[]
  /** Values with mistakes that are left out here. */
  readonly leftOut: readonly Keys[]
  /** `file:line:column` of a value, or of a text in the value. */
  readonly placeOf: (keys: Keys, text?: string) => string
}

/** Throws a StartError for a file that cannot be read at all. */
export function readFleet(path: string): Fleet {
  const text = readText(path)
  const lines = new LineCounter()
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false })
  const offsetOf = (keys: Keys): number => {
    for (let length = keys.length; length > 0; length -= 1) {
      const node = document.getIn(keys.slice(0, length), true) as { range?: [number] } | undefined
      if (node?.range) return node.range[0]
    }
    return 0
  }
  const placeAt = (offset: number) => {
    const { line, col } = lines.linePos(offset)
    return `${path}:${line}:${col}`
  }
  const syntax = document.errors.map(
    (error) =>
      `${placeAt(errorOffset(error, text))}: ${yamlSentence(error, text, 'The file is not YAML')}`,
  )
  if (syntax.length > 0) throw mistakesError(path, syntax)
  const placeOf: Fleet['placeOf'] = (keys, part = '') => {
    const at = offsetOf(keys)
    const inside = text.indexOf(part, at)
    return placeAt(inside < 0 ? at : inside)
  }
  const reading = readAsFarAsPossible(FleetSchema, toJs(document, path))
  const found = [...reading.mistakes]
    .sort((a, b) => offsetOf(a.keys) - offsetOf(b.keys))
    .map(({ keys, sentence }) => `${placeOf(keys)}: ${sentence}`)
  if (!reading.data) throw mistakesError(path, found)
  const { devices, connect, vars, device_vars, policies, sets } = reading.data
  const besides = (other: string) => resolve(dirname(path), other)
  const readPolicy = (name: string, file: string): FleetPolicy[] => {
    const shown = isAbsolute(file) ? file : join(dirname(path), file)
    try {
      return [{ policy: readText(shown), path: shown }]
    } catch (error) {
      found.push(`${placeOf(['policies', name])}: ${(error as Error).message}`)
      return []
    }
  }
  const readPolicies = Object.entries(policies).flatMap(([name, policy]) =>
    (typeof policy === 'string' ? readPolicy(name, policy) : [{ policy, path: undefined }]).map(
      (it) => [name, it] as const,
    ),
  )
  return {
    path,
    devicesPath: besides(devices),
    connect: { address: connect.address, caPath: connect.ca && besides(connect.ca) },
    vars,
    deviceVars: device_vars,
    policies: Object.fromEntries(readPolicies),
    sets,
    mistakes: found,
    leftOut: [
      ...reading.leftOut,
      ...Object.keys(policies).flatMap((name) =>
        readPolicies.some(([read]) => read === name) ? [] : [['policies', name]],
      ),
    ],
    placeOf,
  }
}

function toJs(document: ReturnType<typeof parseDocument>, path: string): unknown {
  try {
    return document.toJS({ maxAliasCount: 100 })
  } catch (error) {
    throw new StartError(`${path}: ${(error as Error).message}.`, { cause: error })
  }
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    const reason = code === 'ENOENT' ? 'there is no such file' : code
    throw new StartError(`Cannot read ${path}: ${reason}.`, { cause: error })
  }
}
