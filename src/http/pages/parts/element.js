/**
 * Creates an element. Properties that begin with `on` are listeners, the others attributes. `true`
 * sets an empty attribute, `false` and undefined set no attribute. Strings are never parsed as HTML.
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {...any} children
 * @returns {any}
 */
export function element(tag, props = {}, ...children) {
  const node = document.createElement(tag)
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === false) continue
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value)
    else node.setAttribute(name, value === true ? '' : value)
  }
  append(node, children)
  return node
}

/** Replaces all children. */
export function fill(node, ...children) {
  node.replaceChildren()
  append(node, children)
}

/** Sets a text only if it differs, so that it is not painted and read out again. */
export function setText(node, text) {
  const shown = String(text)
  if (node.textContent !== shown) node.textContent = shown
}

/**
 * Keeps one child of `parent` per item, by id and in the order of the items. Existing children are
 * updated in place, so that they keep the focus and their open parts.
 * @param {HTMLElement} parent
 * @param {readonly any[]} items
 * @param {Map<string, { node: HTMLElement, update: (item: any) => void }>} kept
 * @param {(item: any) => { node: HTMLElement, update: (item: any) => void }} make
 */
export function keepChildren(parent, items, kept, make) {
  const ids = new Set(items.map(({ id }) => id))
  for (const [id, { node }] of kept) {
    if (ids.has(id)) continue
    node.remove()
    kept.delete(id)
  }
  const focused = /** @type {HTMLElement | null} */ (document.activeElement)
  items.forEach((item, at) => {
    const child = kept.get(item.id) ?? make(item)
    kept.set(item.id, child)
    child.update(item)
    if (parent.children[at] !== child.node) parent.insertBefore(child.node, parent.children[at])
  })
  // A child that was moved has lost the focus.
  if (document.activeElement !== focused && parent.contains(focused)) focused.focus()
}

/** Moves the focus to the heading of the view if the focused element was removed. */
export function keepFocus() {
  if (document.activeElement === document.body) document.querySelector('h1')?.focus()
}

function append(node, children) {
  for (const child of children.flat(2)) {
    if (child !== undefined && child !== null && child !== false) node.append(child)
  }
}
