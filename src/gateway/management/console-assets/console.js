import { ask } from './api.js'
import { element, fill } from './element.js'
import { icon } from './icon.js'
import { createToast, errorNotice, say } from './notice.js'
import { addressesView } from './views/addresses-view.js'
import { apiKeysView } from './views/api-keys-view.js'
import { auditView } from './views/audit-view.js'
import { authtokensView } from './views/authtokens-view.js'
import { botUsersView } from './views/bot-users-view.js'
import { devicesView } from './views/devices-view.js'
import { domainsView } from './views/domains-view.js'
import { signInView } from './views/sign-in-view.js'
import { webhooksView } from './views/webhooks-view.js'

const VIEWS = {
  devices: { label: 'Devices', make: devicesView },
  domains: { label: 'Domains', make: domainsView },
  addresses: { label: 'Addresses', make: addressesView },
  'bot-users': { label: 'Bot users', make: botUsersView },
  authtokens: { label: 'Authtokens', make: authtokensView },
  'api-keys': { label: 'API keys', make: apiKeysView },
  webhooks: { label: 'Webhooks', make: webhooksView },
  audit: { label: 'Audit', make: auditView },
}
const TITLE = 'Gateway console'

const page = element('div', { id: 'page' })
/** Closes what is shown; undefined while nobody is signed in. */
let leave

document.body.append(page, createToast())
document.addEventListener('signed-out', () => {
  // A late answer must not take the form away from somebody who is signing in again.
  if (leave) showSignIn('Your session is over: sign in again to go on.')
})
void start()

async function start() {
  try {
    const { api_key: apiKey } = await ask('GET', 'session')
    if (apiKey) showConsole(apiKey)
    else showSignIn()
  } catch (error) {
    fill(page, element('main', { class: 'sign-in' }, errorNotice(error)))
  }
}

function showSignIn(notice) {
  leave?.()
  leave = undefined
  for (const dialog of document.querySelectorAll('dialog')) dialog.close()
  document.title = `Sign in · ${TITLE}`
  fill(page, signInView({ notice, onSignedIn: showConsole }))
  document.getElementById('api-key')?.focus()
}

function showConsole(apiKey) {
  const links = Object.entries(VIEWS).map(([name, { label }]) =>
    element('a', { href: `#/${name}` }, icon(name), element('span', {}, label)),
  )
  const isReadOnly = apiKey.scope === 'read'
  page.classList.toggle('is-read-only', isReadOnly)
  const main = element('main', { id: 'main', tabindex: '-1' })
  const skip = (event) => {
    event.preventDefault()
    main.focus()
  }
  fill(
    page,
    element('a', { class: 'skip', href: '#main', onclick: skip }, 'Skip to content'),
    element(
      'header',
      { class: 'bar' },
      element('img', { src: 'icon.svg', alt: '', width: '28', height: '28' }),
      element('span', { class: 'brand' }, TITLE),
      element(
        'span',
        { class: 'signed-in' },
        isReadOnly ? `${apiKey.name} (read only)` : apiKey.name,
      ),
      element('button', { type: 'button', class: 'button', onclick: signOut }, 'Sign out'),
    ),
    element('nav', { class: 'views', 'aria-label': 'Views' }, links),
    main,
  )
  let view
  window.addEventListener('hashchange', show)
  leave = () => {
    window.removeEventListener('hashchange', show)
    view?.close()
  }
  show()

  function show() {
    view?.close()
    const asked = location.hash.slice(2)
    const name = Object.hasOwn(VIEWS, asked) ? asked : 'devices'
    const { label, make } = VIEWS[name]
    document.title = `${label} · ${TITLE}`
    for (const link of links) {
      if (link.hash === `#/${name}`) link.setAttribute('aria-current', 'page')
      else link.removeAttribute('aria-current')
    }
    view = make({ apiKey })
    fill(main, isReadOnly && readOnlyNotice(), view.node)
    window.scrollTo(0, 0)
    main.querySelector('h1')?.focus({ preventScroll: true })
    view.open()
  }
}

function readOnlyNotice() {
  return element(
    'p',
    { class: 'notice notice-read-only' },
    'This API key may only read. To change something, sign in with one of the scope write.',
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
