import type { PageRequest } from '../records/resource-table.ts'

/** A page of things that live in memory only, newest first like those in the database. */
export function livePage<Item extends { readonly id: string }>(
  items: Iterable<Item>,
  { beforeId, limit }: PageRequest,
): Item[] {
  return [...items]
    .filter(({ id }) => beforeId === undefined || id < beforeId)
    .sort((a, b) => (a.id < b.id ? 1 : -1))
    .slice(0, limit)
}
