import type { Form, Problem } from './forms.ts'

/** One setting of a group. */
export interface Setting<Key extends string = string, Value = unknown> {
  /** Name of the parsed value in its group. */
  readonly key: Key
  /** Returns the value of a text or of the default, or the problem of the text. */
  readonly read: (text: string | undefined) => Value | Problem
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
  form: Form<Value>,
  fallback: string,
): Described<Key, Value>
export function setting<const Key extends string, Value>(
  key: Key,
  form: Form<Value>,
): Described<Key, Value | undefined>
export function setting(key: string, form: Form<unknown>, fallback?: string) {
  const read = (text = fallback) => (text === undefined ? undefined : form.read(text))
  return {
    describe: (meaning: string, computed = '') => ({
      key,
      read,
      fallback: fallback ?? '',
      computed,
      meaning,
      isSecret: form.isSecret,
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
  const values = Object.entries(group).map(([name, { read }]) => [name, read(undefined)])
  return valuesOf(group, Object.fromEntries(values))
}
