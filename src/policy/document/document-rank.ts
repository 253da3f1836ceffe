import { stepsOf } from './json-pointer.ts'

/** Where a part of a document stands: its place among its siblings, from the top down. */
export type Rank = readonly number[]

/** Ranks of JSON pointers; what is not there stands where it would have to be added. */
export function documentRanks(document: unknown): (pointer: string) => Rank {
  const places = new WeakMap<object, Map<string, number>>()
  const placesIn = (parent: object) => {
    const known = places.get(parent) ?? new Map(Object.keys(parent).map((key, at) => [key, at]))
    places.set(parent, known)
    return known
  }
  return (pointer) => {
    const rank: number[] = []
    let node = document
    for (const step of stepsOf(pointer)) {
      if (typeof node !== 'object' || node === null) break
      const place = placesIn(node).get(step)
      if (place === undefined) break
      rank.push(place)
      node = (node as Readonly<Record<string, unknown>>)[step]
    }
    return rank
  }
}

/** What contains comes before what it contains. */
export function compareRanks(a: Rank, b: Rank): number {
  for (const [index, place] of a.entries()) {
    const other = b[index]
    if (other === undefined) return 1
    if (place !== other) return place - other
  }
  return a.length - b.length
}
