import type * as z from 'zod'

/** One setting of a group. */
export interface Setting<Key extends string = string, Value = unknown> {
  /** Name of the parsed value in its group. */
  readonly key: Key
  readonly schema: z.ZodType<Value>
  /** Default as a person would write it. */
  readonly fallback: string
  /** Default that the program computes, for the docs. */
  readonly computed: string
  /** Text of the docs: noun, unit, effect, special value. */
  readonly meaning: string
  /** Whether the text of the setting is a secret, or may contain one. */
  readonly isSecret: boolean
}

/** Settings by their names. The part that uses a group gets its parsed values as one object. */
export type Group = Readonly<Record<string, Setting>>

type ValueOf<S> = S extends Setting<string, infer Value> ? Value : never

/** Parsed values of a group, by their keys. */
export type GroupValues<G extends Group> = {
  readonly [S in G[keyof G] as S['key']]: ValueOf<S>
}

/** Parsed values by the names of the settings. */
export type NamedValues<G extends Group> = { readonly [Name in keyof G]: ValueOf<G[Name]> }

interface Described<Key extends string, Value> {
  /** Adds the text of the docs, and the default that the program computes if the setting is unset. */
  describe(meaning: string, computed?: string): Setting<Key, Value>
}

/** Declares a setting. Without a default, its value may be undefined. */
export function setting<const Key extends string, Value>(
  key: Key,
  form: z.ZodType<Value>,
  fallback: string,
): Described<Key, Value>
export function setting<const Key extends string, Value>(
  key: Key,
  form: z.ZodType<Value>,
): Described<Key, Value | undefined>
export function setting(key: string, form: z.ZodType, fallback?: string) {
  const schema = fallback === undefined ? form.optional() : form.prefault(fallback)
  return {
    describe: (meaning: string, computed = '') => ({
      key,
      schema,
      fallback: fallback ?? '',
      computed,
      meaning,
      isSecret: form.meta()?.isSecret === true,
    }),
  }
}

/** Selects the values of a group from all parsed settings. */
export function valuesOf<G extends Group>(group: G, parsed: NamedValues<G>): GroupValues<G> {
  const values = Object.entries(group).map(([name, { key }]) => [key, parsed[name]])
  return Object.fromEntries(values) as GroupValues<G>
}

/** Values of a group in which no setting is set. */
export function defaultsOf<G extends Group>(group: G): GroupValues<G> {
  const values = Object.entries(group).map(([name, { schema }]) => [name, schema.parse(undefined)])
  return valuesOf(group, Object.fromEntries(values))
}
