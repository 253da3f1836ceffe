import type { Viewer } from '../caller.ts'
import type { PageQuery } from '../page-query.ts'

/** An item as it is answered. */
export interface View {
  readonly id: string
}

/** What one node has of a page, newest first: all that it has from `nextBefore` on. */
export interface ElsewherePage {
  readonly views: readonly View[]
  /** Undefined: it has nothing older. */
  readonly nextBefore: string | undefined
}

/** A node that did not answer. */
export interface MissingNode {
  readonly id: string
  readonly name: string
}

export interface Asked {
  readonly viewer: Viewer
  readonly baseUrl: string
}

/** What lives in the memory of the other nodes. They have 2 s to say it. */
export interface Elsewhere {
  page(
    query: PageQuery,
    asked: Asked,
  ): Promise<{ readonly pages: readonly ElsewherePage[]; readonly missing: readonly MissingNode[] }>
  find(
    id: string,
    asked: Asked,
  ): Promise<{
    readonly found: readonly { readonly nodeId: string; readonly view: View }[]
    readonly missing: readonly MissingNode[]
  }>
  /** Throws what the other node refuses with, and a ResourceNotFoundError when it is gone there. */
  act(nodeId: string, id: string, action: string, viewer: Viewer): Promise<void>
}

/**
 * One page of those of all nodes. What one of them has not looked at yet, because it has more than a
 * page or had no time, comes with the next page: nothing older than that is in this one.
 */
export function mergePages(
  pages: readonly ElsewherePage[],
  limit: number,
  combine: (views: readonly [View, ...View[]]) => View,
): ElsewherePage {
  const ends = pages.flatMap(({ nextBefore }) => (nextBefore === undefined ? [] : [nextBefore]))
  const from = ends.sort().at(-1)
  const byId = new Map<string, [View, ...View[]]>()
  for (const view of pages.flatMap(({ views }) => views)) {
    if (from !== undefined && view.id < from) continue
    const same = byId.get(view.id)
    if (same) same.push(view)
    else byId.set(view.id, [view])
  }
  const all = [...byId].sort(([a], [b]) => (a < b ? 1 : -1)).map(([, same]) => combine(same))
  const views = all.slice(0, limit)
  return { views, nextBefore: all.length > limit ? views.at(-1)?.id : from }
}
