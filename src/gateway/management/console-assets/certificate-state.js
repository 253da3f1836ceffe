import { ask } from './api.js'
import { badge } from './card.js'
import { element, fill } from './element.js'
import { formatDistance } from './format.js'

const CHECK_MS = 2_000
/** The gateway warns this early before an uploaded certificate expires. */
const WARN_BEFORE_MS = 14 * 86_400_000

/** Badge of a certificate that people replace. */
export function endBadge(end) {
  if (end <= Date.now()) return badge('Expired', 'bad')
  return end - Date.now() < WARN_BEFORE_MS ? badge('Expires soon', 'bad') : badge('Valid', 'good')
}

/** What is said about the certificate, kept up to date while it is being made. */
export function certificateState(domain) {
  const { id, certificate_management_status: status } = domain
  const isUploaded = domain.certificate !== null
  const isOnDemand = domain.certificate_management_policy.challenge === 'on-demand'
  const badgePlace = element('span', {})
  const sentence = element('span', {})
  let shown
  show(status)
  return { badge: badgePlace, sentence, follow, followRetry }

  function show(now) {
    shown = now
    // Below a wildcard, certificates follow when names come online.
    const isWaiting = isOnDemand && !now.provisioning_job && !now.renews_at
    if (isUploaded) return showUploaded(now)
    fill(badgePlace, isWaiting ? badge('Certificate on demand', 'wait') : certificateBadge(now))
    fill(sentence, isWaiting ? 'Ordered for each name that comes online' : certificateSentence(now))
  }

  function showUploaded({ ends_at: end }) {
    const isOver = end !== undefined && Date.parse(end) <= Date.now()
    fill(
      badgePlace,
      isOver ? badge('Certificate expired', 'bad') : badge('Own certificate', 'good'),
    )
    const verb = isOver ? 'expired' : 'expires'
    fill(sentence, end ? `Uploaded, ${verb} ${formatDistance(end)}` : 'Uploaded')
  }

  function follow(card) {
    if (isUnderWay(shown)) setTimeout(look, CHECK_MS, card)
  }

  /** The gateway may have begun to try again just now. */
  function followRetry(card) {
    if (!isUnderWay(shown)) void look(card)
  }

  async function look(card) {
    if (!card.isConnected) return
    try {
      const now = await ask('GET', `api/reserved_domains/${id}`, { isBackground: true })
      show(now.certificate_management_status)
    } catch {
      // Whatever it is, the next thing that a person does here will say it.
    }
    follow(card)
  }
}

function isUnderWay({ provisioning_job: job }) {
  return job !== null && job.error_code === null
}

function certificateBadge({ provisioning_job: job }) {
  if (!job) return badge('Certificate ready', 'good')
  return job.error_code ? badge('Certificate failed', 'bad') : badge('Certificate pending', 'wait')
}

function certificateSentence({ renews_at, provisioning_job: job }) {
  if (!job) return renews_at ? `Renews ${formatDistance(renews_at)}` : 'Not issued yet'
  const retry = job.retries_at ? ` Next attempt ${formatDistance(job.retries_at)}.` : ''
  return job.error_code ? `${job.msg} (${job.error_code})${retry}` : job.msg
}
