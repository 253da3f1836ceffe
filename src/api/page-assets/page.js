import { ask } from './api.js'
import { element, fill } from './element.js'
import { icon } from './icon.js'
import { createToast, errorNotice, say } from './notice.js'
import { doctorView } from './views/doctor-view.js'
import { inspectView } from './views/inspect-view.js'
import { logView } from './views/log-view.js'
import { signInView } from './views/sign-in-view.js'
import { tunnelsView } from './views/tunnels-view.js'

/** @type {Record<string, { label: string, make: (options: any) => any, isPartOf?: string }>} */
const VIEWS = {
  tunnels: { label: 'Tunnels', make: tunnelsView },
  doctor: { label: 'Doctor', make: doctorView },
  log: { label: 'Log', make: logView },
  inspect: { label: 'Inspector', make: inspectView, isPartOf: 'tunnels' },
}
const TITLE = 'Device agent'
const CODE = /^#code=([\w-]+)$/

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
    const code = takeCode()
    const session = (code && (await signInWith(code))) || (await ask('GET', 'session')).session
    if (session) showDevice(session)
    else showSignIn(code && 'The code in this address is over. Ask the device for a new one.')
  } catch (error) {
    fill(page, element('main', { class: 'sign-in' }, errorNotice(error)))
  }
}

/** The code of the address that somebody came by; it is good once, and not for the history. */
function takeCode() {
  const code = CODE.exec(location.hash)?.[1]
  if (code) history.replaceState(null, '', location.pathname)
  return code
}

async function signInWith(code) {
  try {
    return (await ask('POST', 'session', { body: { code } })).session
  } catch (error) {
    if (error.code === 'unauthenticated') return undefined
    throw error
  }
}

function showSignIn(notice) {
  leave?.()
  leave = undefined
  for (const dialog of document.querySelectorAll('dialog')) dialog.close()
  document.title = `Sign in · ${TITLE}`
  fill(page, signInView({ notice, onSignedIn: showDevice }))
  document.getElementById('code')?.focus()
}

function showDevice(session) {
  const ownLinks = Object.entries(VIEWS).filter(([, { isPartOf }]) => !isPartOf)
  const links = ownLinks.map(([name, { label }]) =>
    element('a', { href: `#/${name}` }, icon(name), element('span', {}, label)),
  )
  const isReadOnly = session.scope === 'read'
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
      element('span', { class: 'signed-in' }, isReadOnly ? 'Read only' : ''),
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
    const [asked, ...rest] = location.hash.slice(2).split('/')
    const name = Object.hasOwn(VIEWS, asked) ? asked : 'tunnels'
    const { label, make, isPartOf = name } = VIEWS[name]
    document.title = `${label} · ${TITLE}`
    for (const link of links) {
      if (link.hash === `#/${isPartOf}`) link.setAttribute('aria-current', 'page')
      else link.removeAttribute('aria-current')
    }
    view = make({ session, argument: rest.join('/') })
    fill(main, view.node)
    window.scrollTo(0, 0)
    main.querySelector('h1')?.focus({ preventScroll: true })
    view.open()
  }
}

async function signOut() {
  try {
    await ask('DELETE', 'session')
    showSignIn('You are signed out.')
  } catch (error) {
    say(error.message)
  }
}
