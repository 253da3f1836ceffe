import { createAsk } from './asking.js'

const MAX_ITEMS = 1_000

/** Asks the gateway. */
export const ask = createAsk({
  who: 'The gateway',
  hint: 'Check that it runs and that you can reach it.',
  headers: { 'svc-version': '2' },
  refusal: ({ msg, error_code }) => ({ sentence: msg, code: error_code }),
})

/**
 * One page of a list, newest first; `next` is the id to go on before, when there is more.
 * @param {string} path
 * @param {string} collection
 * @param {{ before?: string, filter?: string, limit?: number, isBackground?: boolean }} [options]
 */
export async function askPage(path, collection, { before, filter, limit, isBackground } = {}) {
  const query = new URLSearchParams({
    ...(before && { before_id: before }),
    ...(filter && { filter }),
    ...(limit && { limit: String(limit) }),
  })
  const asked = query.size === 0 ? path : `${path}?${query}`
  const answer = await ask('GET', `api/${asked}`, { isBackground })
  const uri = answer.next_page_uri
  // A page of chosen items can be empty, and there are more all the same.
  const next = uri ? new URL(uri).searchParams.get('before_id') : undefined
  return { items: answer[collection], next }
}

/** A list as far as people choose from it: the newest 1,000. */
export async function askAll(path, collection) {
  const all = []
  for (let before; all.length < MAX_ITEMS; ) {
    const { items, next } = await askPage(path, collection, { before })
    all.push(...items)
    if (!next) break
    before = next
  }
  return all
}
