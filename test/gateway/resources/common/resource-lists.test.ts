import { describe, expect, it } from 'vitest'
import { mergePages, type View } from '../../../../src/gateway/resources/common/resource-lists.ts'

const first = ([view]: readonly [View, ...View[]]) => view
const page = (ids: readonly string[], nextBefore?: string) => ({
  views: ids.map((id) => ({ id })),
  nextBefore,
})
const idsOf = ({ views }: { readonly views: readonly View[] }) => views.map(({ id }) => id)

describe('a page of several nodes', () => {
  it('is the newest of all, and begins the next one behind them', () => {
    const merged = mergePages([page(['9', '5', '3'], '3'), page(['8', '7', '1'], '1')], 3, first)
    expect([idsOf(merged), merged.nextBefore]).toEqual([['9', '8', '7'], '7'])
  })

  it('has nothing that is older than what a node has not looked at yet', () => {
    // The first one had no time to look on: it may have a 4.
    const merged = mergePages([page(['9'], '5'), page(['8', '3'])], 10, first)
    expect([idsOf(merged), merged.nextBefore]).toEqual([['9', '8'], '5'])
  })

  it('ends when all have said all', () => {
    const merged = mergePages([page(['9']), page(['8'])], 10, first)
    expect([idsOf(merged), merged.nextBefore]).toEqual([['9', '8'], undefined])
  })

  it('has once what several have', () => {
    const all = (views: readonly [View, ...View[]]) => ({ id: `${views[0].id} of ${views.length}` })
    const merged = mergePages([page(['9', '8']), page(['9'])], 10, all)
    expect(idsOf(merged)).toEqual(['9 of 2', '8 of 1'])
  })
})
