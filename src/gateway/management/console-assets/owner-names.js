import { askPage } from './api.js'

/** Who owns what is listed, by name: bot users are asked for by their id, for there may be thousands. */
export class OwnerNames {
  /** By id. */
  #names = new Map()

  /** Asks for the owners of these items. */
  async learn(items) {
    const ids = [...new Set(items.map((item) => item.owner_id).filter(Boolean))]
    const filter = `obj.id in ${JSON.stringify(ids)}`
    let before
    for (let missing = ids.length; missing > 0; ) {
      const page = await askPage('bot_users', 'bot_users', { filter, before, limit: missing })
      for (const { id, name } of page.items) this.#names.set(id, name)
      missing -= page.items.length
      before = page.next
      if (!before) return
    }
  }

  /** The name, or the id if there is no name. Undefined without an owner. */
  nameOf(id) {
    return id ? (this.#names.get(id) ?? id) : undefined
  }
}
