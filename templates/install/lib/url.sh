# The controller's URL, made from its parts. A literal IPv6 address gets brackets. The protocol may come with its colon.
case $_URL_PATH in
  *://*/*)
    _URL_PATH=${_URL_PATH#*://}
    _URL_PATH=/${_URL_PATH#*/}
    _URL_PATH=${_URL_PATH%/}
    ;;
  *) _URL_PATH='' ;;
esac
SVC_API_PROTOCOL=${SVC_API_PROTOCOL%%:*}
case $SVC_API_ADDRESS in
  \[*) _URL_HOST=$SVC_API_ADDRESS ;;
  *:*) _URL_HOST=[$SVC_API_ADDRESS] ;;
  *) _URL_HOST=$SVC_API_ADDRESS ;;
esac
SVC_URL=$SVC_API_PROTOCOL://$_URL_HOST:$SVC_API_PORT$_URL_PATH
# All controllers, with blanks between them. $SVC_URL is the first of them: the one that is asked now.
_URLS="$SVC_URL${_URLS:+ $_URLS}"
