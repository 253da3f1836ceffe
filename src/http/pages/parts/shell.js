import { element, fill } from './element.js'
import { icon } from './icon.js'
import { createToast, errorNotice, say } from './notice.js'

/**
 * Runs a page: shows its views to signed-in users, and the sign-in form to others.
 *
 * - `enter` returns the current session, or the reason for its absence in `notice`.
 * - `describe` returns the name of the user.
 * - `nameOf` returns the title for a session. Default: `title`.
 * - The first view is the start page. A view with `isPartOf` has no link in the navigation. The part
 *   of the address after the name of a view is its `argument`.
 * @param {{ title: string,
 *   views: Record<string, { label: string, make: (options: any) => any, isPartOf?: string }>,
 *   ask: (method: string, path: string) => Promise<any>,
 *   enter: () => Promise<{ session?: any, notice?: string }>,
 *   signInView: (options: any) => HTMLElement,
 *   describe: (session: any) => string,
 *   nameOf?: (session: any) => string,
 *   readOnlyNotice?: string }} options
 */
export function runPage({
  title,
  views,
  ask,
  enter,
  signInView,
  describe,
  nameOf = () => title,
  readOnlyNotice,
}) {
  const page = element('div', { id: 'page' })
  /** Closes the current view. Undefined while the user is not signed in. */
  let leave
  document.body.append(page, createToast())
  document.addEventListener('signed-out', () => {
    // A late answer must not replace the form while the user is signing in again.
    if (leave) showSignIn('Your session has ended. Sign in again to continue.')
  })
  return start()

  async function start() {
    try {
      const { session, notice } = await enter()
      if (session) showViews(session)
      else showSignIn(notice)
    } catch (error) {
      fill(page, element('main', { class: 'sign-in' }, errorNotice(error)))
    }
  }

  function showSignIn(notice) {
    leave?.()
    leave = undefined
    for (const dialog of document.querySelectorAll('dialog')) dialog.close()
    document.title = `Sign in · ${title}`
    fill(page, signInView({ notice, onSignedIn: showViews }))
    page.querySelector('input')?.focus()
  }

  function showViews(session) {
    const isReadOnly = session.scope === 'read'
    const name = nameOf(session)
    page.classList.toggle('is-read-only', isReadOnly)
    const links = Object.entries(views)
      .filter(([, { isPartOf }]) => !isPartOf)
      .map(([view, { label }]) =>
        element('a', { href: `#/${view}` }, icon(view), element('span', {}, label)),
      )
    const main = element('main', { id: 'main', tabindex: '-1' })
    fill(page, skipLink(main), bar(name, describe(session)), navigation(links), main)
    let view
    window.addEventListener('hashchange', show)
    leave = () => {
      window.removeEventListener('hashchange', show)
      view?.close()
    }
    show()

    function show() {
      view?.close()
      const [asked, ...rest] = location.hash.slice(2).split('/')
      const at = Object.hasOwn(views, asked) ? asked : Object.keys(views)[0]
      const { label, make, isPartOf = at } = views[at]
      document.title = `${label} · ${name}`
      for (const link of links) {
        if (link.hash === `#/${isPartOf}`) {
          link.setAttribute('aria-current', 'page')
          // On a phone, the bar shows only some of the links.
          link.scrollIntoView({ block: 'nearest', inline: 'nearest' })
        } else link.removeAttribute('aria-current')
      }
      view = make({ session, argument: rest.join('/') })
      const notice = isReadOnly && readOnlyNotice
      fill(main, notice && element('p', { class: 'notice notice-read-only' }, notice), view.node)
      window.scrollTo(0, 0)
      main.querySelector('h1')?.focus({ preventScroll: true })
      view.open()
    }
  }

  function bar(name, who) {
    return element(
      'header',
      { class: 'bar' },
      element('img', { src: 'icon.svg', alt: '', width: '28', height: '28' }),
      element('span', { class: 'brand' }, name),
      element('span', { class: 'signed-in' }, who),
      element('button', { type: 'button', class: 'button', onclick: signOut }, 'Sign out'),
    )
  }

  async function signOut() {
    try {
      await ask('DELETE', 'session')
      showSignIn('You are signed out.')
    } catch (error) {
      say(error.message)
    }
  }
}

/** Returns a link for keyboard users that skips the parts common to all views. */
function skipLink(main) {
  const skip = (event) => {
    event.preventDefault()
    main.focus()
  }
  return element('a', { class: 'skip', href: '#main', onclick: skip }, 'Skip to content')
}

function navigation(links) {
  return element('nav', { class: 'views', 'aria-label': 'Views' }, links)
}
